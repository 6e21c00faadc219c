# mypy: ignore-errors
"""Answers of lab 01 (sgd).

Generated from solutions/01_sgd.py by `make release`; do not edit.
"""

import torch


def minibatches(n: int, batch_size: int, seed: int) -> list[torch.Tensor]:
    """Shuffle the numbers 0 to n - 1 and cut them into batches: a list or tuple of int64 tensors.

    Every batch has `batch_size` numbers; the last batch has the rest. The same seed gives the
    same batches, a new seed gives new batches. Leave torch's global seed alone: make a
    torch.Generator of your own.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    return list(order.split(batch_size))


def sgd_step(parameters, gradients, lr, momentum=0.0, velocities=None):
    """Take one step of SGD: change the parameters in place, and leave the gradients unchanged.

    The parameters stay in the same memory. `velocities` is the return value of the previous step,
    or None at the first step. Returns the new velocities: a list or tuple of tensors, one for each
    parameter.
    """
    if velocities is None:
        velocities = [torch.zeros_like(g) for g in gradients]
    velocities = [momentum * v + g for v, g in zip(velocities, gradients)]
    with torch.no_grad():
        for p, v in zip(parameters, velocities):
            p -= lr * v
    return velocities


def accumulate(loss, parameters, micro_batches):
    """Return the gradients of the mean loss over all images of all micro-batches.

    The gradients are a list or tuple of tensors. `loss(x, y)` is the mean loss over the images x.
    `micro_batches` is a list of (x, y); the lengths may differ. Each micro-batch goes through the
    model whole and alone, and at most two graphs are in memory, because the whole batch does not
    fit. Old values of .grad do not count, and the parameters stay unchanged.
    """
    images = sum(len(y) for _, y in micro_batches)
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in micro_batches:
        gradients = torch.autograd.grad(loss(x, y), parameters)
        for t, g in zip(total, gradients):
            t += g * (len(y) / images)
    return total
