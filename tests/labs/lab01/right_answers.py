"""Right answers to lab 01, different from the solution."""

import random

import numpy as np
import torch

from tests.labs.answers import right


@right("minibatches")
def by_slices(n, batch_size, seed):
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return [torch.tensor(order[i : i + batch_size]) for i in range(0, n, batch_size)]


@right("minibatches")
def with_a_forked_global_seed(n, batch_size, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.rand(n).argsort().split(batch_size)


@right("minibatches")
def by_numpy(n, batch_size, seed):
    order = torch.from_numpy(np.random.default_rng(seed).permutation(n))
    cuts = range(batch_size, n, batch_size)
    return list(torch.tensor_split(order, list(cuts)))


@right("sgd_step")
def by_data(parameters, gradients, lr, momentum=0.0, velocities=None):
    if velocities is None:
        velocities = [g.clone() for g in gradients]
    else:
        for v, g in zip(velocities, gradients, strict=True):
            v.mul_(momentum).add_(g)
    for p, v in zip(parameters, velocities, strict=True):
        p.data -= lr * v
    return velocities


@right("sgd_step")
def foreach(parameters, gradients, lr, momentum=0.0, velocities=None):
    new = gradients if velocities is None else torch._foreach_mul(velocities, momentum)
    new = torch._foreach_add(new, gradients) if velocities is not None else list(gradients)
    with torch.no_grad():
        torch._foreach_add_(parameters, new, alpha=-lr)
    return tuple(new)


@right("sgd_step")
def by_an_optimizer(parameters, gradients, lr, momentum=0.0, velocities=None):
    optimizer = torch.optim.SGD(parameters, lr, momentum)
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        p.grad = g
        if velocities is not None and momentum:
            optimizer.state[p]["momentum_buffer"] = velocities[i]
    optimizer.step()
    buffers = [optimizer.state[p].get("momentum_buffer") for p in parameters]
    return [g if b is None else b for b, g in zip(buffers, gradients, strict=True)]


@right("accumulate")
def by_backward(loss, parameters, micro_batches):
    images = sum(map(len, next(zip(*((y, x) for x, y in micro_batches), strict=True))))
    for p in parameters:
        p.grad = None
    for x, y in micro_batches:
        (loss(x, y) * len(x) / images).backward()
    return [p.grad for p in parameters]


@right("accumulate")
def running_mean(loss, parameters, micro_batches):
    mean, images = [0.0] * len(parameters), 0
    for x, y in micro_batches:
        images += len(y)
        new = torch.autograd.grad(loss(x, y), parameters)
        mean = [m + (g - m) * len(y) / images for m, g in zip(mean, new, strict=True)]
    return tuple(mean)


@right("accumulate")
def keeps_each_graph_for_a_while(loss, parameters, micro_batches):
    """Keep each graph until the next graph is built, and no longer."""
    total, images = [torch.zeros_like(p) for p in parameters], sum(len(y) for _, y in micro_batches)
    for x, y in micro_batches:
        part = loss(x, y) * len(y) / images
        found = torch.autograd.grad(part, parameters, retain_graph=True)
        torch._foreach_add_(total, found)
    return total


@right("accumulate")
def from_the_last_one(loss, parameters, micro_batches):
    images = sum(len(y) for _, y in micro_batches)
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in reversed(micro_batches):
        for t, g in zip(total, torch.autograd.grad(loss(x, y), parameters), strict=True):
            t += g * (len(y) / images)
    return total
