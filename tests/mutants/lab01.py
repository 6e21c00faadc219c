"""Wrong answers to lab 01."""

import torch

from tests.mutants import edit, mutant


@mutant("minibatches", hint="not shuffled")
def in_order(n, batch_size, seed):
    return list(torch.arange(n).split(batch_size))


@mutant("minibatches", hint="Draw without putting back")
def with_replacement(n, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(n, (min(batch_size, n - start),), generator=generator)
        for start in range(0, n, batch_size)
    ]


@mutant("minibatches", hint="The last batch is left out")
def drops_the_last(n, batch_size, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [order[i * batch_size : (i + 1) * batch_size] for i in range(n // batch_size)]


@mutant("minibatches", hint="make a torch.Generator")
def seeds_everybody(n, batch_size, seed):
    torch.manual_seed(seed)
    return list(torch.randperm(n).split(batch_size))


@mutant("minibatches", hint="The same seed must give the same")
def unseeded(n, batch_size, seed):
    return list(torch.randperm(n).split(batch_size))


@mutant("minibatches", hint="Another seed must give another order")
def one_seed_for_all(n, batch_size, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return list(order.split(batch_size))


edit("sgd_step", "uphill", replace="p -= lr * v", by="p += lr * v", hint="Downhill")
edit("sgd_step", "no_lr", replace="p -= lr * v", by="p -= v", hint="lr is not used")
edit("sgd_step", "not_in_place", replace="p -= lr * v", by="p = p - lr * v", hint="p -= ...")
edit(
    "sgd_step", "damped", replace="v + g for", by="v + (1 - momentum) * g for", hint="does not damp"
)
edit(
    "sgd_step",
    "no_momentum",
    replace="momentum * v + g",
    by="g + 0 * v",
    hint="Momentum has no effect",
)
edit(
    "sgd_step",
    "forgets",
    replace="return velocities",
    by="return None",
    hint="Return the new velocities",
)


@mutant("sgd_step", hint="Multiply by lr when you take the step")
def lr_in_the_velocity(parameters, gradients, lr, momentum=0.0, velocities=None):
    if velocities is None:
        velocities = [torch.zeros_like(g) for g in gradients]
    velocities = [momentum * v + lr * g for v, g in zip(velocities, gradients, strict=True)]
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            p -= v
    return velocities


@mutant("sgd_step", hint="torch.no_grad")
def differentiates_the_step(parameters, gradients, lr, momentum=0.0, velocities=None):
    if velocities is None:
        velocities = [torch.zeros_like(g) for g in gradients]
    velocities = [momentum * v + g for v, g in zip(velocities, gradients, strict=True)]
    for p, v in zip(parameters, velocities, strict=True):
        p -= lr * v
    return velocities


@mutant("sgd_step", hint="a velocity must be a new tensor")
def velocity_is_the_gradient(parameters, gradients, lr, momentum=0.0, velocities=None):
    """The first velocity is the gradient's own tensor, and then changes in place."""
    if velocities is None:
        velocities = list(gradients)
    else:
        for v, g in zip(velocities, gradients, strict=True):
            v.mul_(momentum).add_(g)
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            p -= lr * v
    return velocities


@mutant("sgd_step", hint="begin with zeros")
def no_first_step(parameters, gradients, lr, momentum=0.0, velocities=None):
    velocities = [momentum * v + g for v, g in zip(velocities, gradients, strict=True)]
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            p -= lr * v
    return velocities


edit("accumulate", "plain_mean", replace="len(y) / images", by="1 / len(micro_batches)",
     hint="A plain mean")  # fmt: skip
edit("accumulate", "sum", replace="len(y) / images", by="1", hint="The gradients are added up")
edit(
    "accumulate", "summed_loss", replace="len(y) / images", by="len(y)", hint="number of all images"
)


@mutant("accumulate", hint="Only the last micro-batch")
def keeps_the_last(loss, parameters, micro_batches):
    for x, y in micro_batches:
        gradients = torch.autograd.grad(loss(x, y), parameters)
    return list(gradients)


@mutant("accumulate", hint="one micro-batch at a time")
def all_at_once(loss, parameters, micro_batches):
    x, y = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    return list(torch.autograd.grad(loss(x, y), parameters))


@mutant("accumulate", hint="p.grad held something already")
def into_an_old_grad(loss, parameters, micro_batches):
    images = sum(len(y) for _, y in micro_batches)
    for x, y in micro_batches:
        (loss(x, y) * len(y) / images).backward()
    return [p.grad for p in parameters]


# Of a stubborn student


@mutant("minibatches", hint="the last one what is left")
def evenly(n, batch_size, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return list(order.tensor_split(-(-n // batch_size)))


@mutant("minibatches", hint="only within their batches")
def shuffled_inside(n, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    batches = torch.arange(n).split(batch_size)
    return [batch[torch.randperm(len(batch), generator=generator)] for batch in batches]


@mutant("minibatches", hint="not shuffled")
def from_the_middle_on(n, batch_size, seed):
    return list(torch.arange(n).roll(seed).split(batch_size))


@mutant("minibatches", hint="a tensor of int64")
def floats(n, batch_size, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return list(order.float().split(batch_size))


@mutant("sgd_step", hint="at the first step the gradient alone")
def first_gradient_twice(parameters, gradients, lr, momentum=0.0, velocities=None):
    before = velocities or gradients
    velocities = [momentum * v + g for v, g in zip(before, gradients, strict=True)]
    with torch.no_grad():
        for p, v in zip(parameters, velocities, strict=True):
            p -= lr * v
    return velocities


edit("sgd_step", "scales_the_velocity", replace="p -= lr * v", by="p -= v.mul_(lr)",
     hint="v *= lr none")  # fmt: skip


@mutant("accumulate", hint="the loss of 1 only")
def the_first_alone(loss, parameters, micro_batches):
    return list(torch.autograd.grad(loss(*micro_batches[0]), parameters))


@mutant("accumulate", hint="clear p.grad once, before the first")
def clears_each_time(loss, parameters, micro_batches):
    images = sum(len(y) for _, y in micro_batches)
    for x, y in micro_batches:
        for p in parameters:
            p.grad = None
        (loss(x, y) * len(y) / images).backward()
    return [p.grad for p in parameters]


@mutant("accumulate", hint="its share of the images")
def as_if_all_were_long(loss, parameters, micro_batches):
    longest = max(len(y) for _, y in micro_batches)
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in micro_batches:
        share = len(y) / longest / len(micro_batches)
        gradients = torch.autograd.grad(loss(x, y), parameters)
        total = [t + g * share for t, g in zip(total, gradients, strict=True)]
    return total
