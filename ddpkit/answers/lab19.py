# mypy: ignore-errors
"""Answers of lab 19 (local_sgd).

Generated from solutions/19_local_sgd.py by `make release`; do not edit.
"""

import contextlib
import math
from datetime import timedelta

import torch
import torch.distributed as dist


def all_gather(whole, mine):
    """Fill `whole` with the tensors `mine` of all ranks, in the order of the ranks."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine)


def line(parameters):
    """Return all numbers of some parameters in one line: a copy."""
    return torch.cat([p.detach().flatten() for p in parameters])


@torch.no_grad()
def put(values, parameters):
    """Copy a line of numbers into some parameters."""
    for p, part in zip(parameters, values.split([p.numel() for p in parameters])):
        p.copy_(part.view_as(p))


def steps_between(step_ms, nbytes, n, latency_ms, gbit, share):
    """Return the least number of steps between exchanges, at least 1: an int.

    An exchange is a ring all-reduce of `nbytes` over n ranks on links of `gbit` Gbit/s, exposed
    in full. A step takes `step_ms`. Exchanges may take at most `share` of all time.
    """
    exchange_ms = 2 * (n - 1) * (latency_ms + nbytes / n * 8 / gbit / 1e6)
    return max(1, math.ceil(exchange_ms * (1 - share) / (share * step_ms)))


class Outer:
    """The outer optimizer of some parameters: SGD with Nesterov's momentum, the same on all ranks.

    `start`, a line, is the last common place of all replicas. The gradient of an outer step is the
    mean over the ranks of the distance from there: start - parameters.
    """

    def __init__(self, parameters, lr=0.7, momentum=0.9):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.start = line(self.parameters)
        self.velocity = torch.zeros_like(self.start)

    def begin(self):
        """Start the exchange, and return at once: the replicas may go on meanwhile."""
        self.mean = self.start - line(self.parameters)
        self.work = dist.all_reduce(self.mean, async_op=True)

    def end(self, keep=0.0):
        """Wait for the exchange, and take the step."""
        self.work.wait()
        self.step(self.mean / dist.get_world_size(), keep)

    def step(self, mean, keep=0.0):
        """Step `start` by lr, momentum and the mean difference.

        Then a parameter p becomes keep * p + (1 - keep) * (the value in the new start).
        """
        self.velocity = self.momentum * self.velocity + mean
        self.start = self.start - self.lr * (mean + self.momentum * self.velocity)
        put(keep * line(self.parameters) + (1 - keep) * self.start, self.parameters)


def stream(step, fragments, every, delay):
    """Return the fragments that begin and that end after inner step `step`, counted from 1.

    Return two lists. Fragment k begins every `every` steps, for the first time after step (k + 1) *
    every // fragments. A fragment ends `delay` steps after the begin; fragments <= every and
    delay < every.
    """
    first = [(k + 1) * every // fragments for k in range(fragments)]

    def due(t):
        return [k for k, f in enumerate(first) if t >= f and (t - f) % every == 0]

    return due(step), due(step - delay)


def mean_by_bytes(x, error):
    """Return the mean over the ranks of x + error, each rounded to int8, and this rank's new error.

    x and error are float32 lines. A rank's levels are -127 to 127 times the rank's scale: the
    largest absolute value / 127. The new error is the part that rounding takes from the rank's
    numbers. Use a single all-gather: one byte for each number, and 4 bytes for the scale. A line of
    zeros stays zero.
    """
    n, wanted = dist.get_world_size(), x + error
    scale = wanted.abs().max().clamp(min=2**-100) / 127
    levels = (wanted / scale).round().to(torch.int8)
    mine = torch.cat([scale.view(1).view(torch.uint8), levels.view(torch.uint8)])
    whole = mine.new_empty(n * len(mine))
    all_gather(whole, mine)
    scales, numbers = whole.view(n, -1).split([4, len(x)], dim=1)
    scales = scales.flatten().view(torch.float32).view(n, 1)
    numbers = numbers.flatten().view(torch.int8).view(n, -1)
    return (numbers * scales).mean(0), wanted - levels * scale


def mean_of(difference, steps, group=None):
    """Return the mean of the group's differences, each weighted by its number of steps.

    A rank with 0 steps takes part, but the difference does not count, even if it contains nan. The
    result is 0 if no rank has taken a step. Use a single all-reduce, for the difference and one
    more number.
    """
    mine = difference * steps if steps else torch.zeros_like(difference)
    both = torch.cat([mine, mine.new_tensor([float(steps)])])
    dist.all_reduce(both, group=group)
    return both[:-1] / both[-1].clamp(min=1)


def quorum(store, name, rank, world_size, least, seconds):
    """Return the ranks that take part in round `name`: a sorted list, equal on all ranks.

    The list is decided when all world_size ranks have asked, or when a rank has waited for
    `seconds`; all ranks that have asked by then are in the list. No rank waits after the decision:
    a late rank gets the list at once, without itself. A rank raises RuntimeError if the rank's time
    is over while fewer than `least` ranks have asked. `store` is any store of c10d.
    """
    members = f"{name}/members"
    store.set(f"{name}/{rank}", "here")
    if store.add(f"{name}/count", 1) < world_size:
        with contextlib.suppress(RuntimeError):  # the time is over, and no rank has decided
            store.wait([members], timedelta(seconds=seconds))
    here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
    if len(here) < least and not store.check([members]):
        raise RuntimeError(f"{len(here)} ranks are there, and {least} are needed")
    agreed = store.compare_set(members, "", " ".join(map(str, here)))
    return [int(r) for r in agreed.split()]


def catch_up(tensors, have, lack):
    """Fill the tensors of each rank in `lack` with the tensors of a rank in `have`.

    have and lack are lists of ranks; ranks in neither list are away, and do nothing. All tensors
    are sent, parameters or not, and only to ranks in `lack`. The ranks in `have` share the sending:
    each sends to equally many ranks, or to one rank more.
    """
    for i, late in enumerate(lack):
        source = have[i % len(have)]
        for tensor in tensors:
            if dist.get_rank() == source:
                dist.send(tensor, late)
            elif dist.get_rank() == late:
                dist.recv(tensor, source)
