"""Lab 06: imitated backwards for a Reducer without ranks; stand-ins for averages record events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

# indices of parameters: a list for each bucket, or in order of readiness for each backward
Layout = Sequence[list[int]]


class Buckets:
    """A stand-in for lab 05's GradientBuckets: the parts that `Reducer` needs.

    Each parameter has one element.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], buckets: Layout) -> None:
        self.parameters = [[parameters[i] for i in bucket] for bucket in buckets]
        self.flat = [torch.zeros(len(bucket)) for bucket in buckets]
        self.views = [[flat[i : i + 1] for i in range(len(flat))] for flat in self.flat]
        self.on_their_way = set[int]()  # buckets between start and wait
        self.touched = set[int]()  # buckets collected between start and wait

    def collect(self, i: int) -> None:
        self.touched |= {i} & self.on_their_way
        for p, view in zip(self.parameters[i], self.views[i], strict=True):
            view.copy_(p.grad) if p.grad is not None else view.zero_()
            p.grad = None if p.grad is None else view


class Notes(list[str]):
    """The events of a run, as texts in order.

    "g2": gradient 2 became ready. "s0": bucket 0 was started. "|": the backward was over. "w0": the
    answer waited for bucket 0.
    """

    def __init__(self, buckets: Buckets) -> None:
        super().__init__()
        self.buckets = buckets

    def start(self, bucket: Any) -> SimpleNamespace:
        flat, index = bucket.buffer(), bucket.index()
        self.append(f"s{index}")
        self.buckets.on_their_way.add(index)
        return SimpleNamespace(wait=partial(self.wait, flat, flat * 10, index))

    def wait(self, flat: Tensor, result: Tensor, index: int) -> Tensor | Literal[True]:
        """Return the imitated average: ten times the bucket's content at the start of the bucket.

        For a bucket with an even number, change the bucket in place and return True, like a Work.
        For an odd number, return a new tensor, as a hook may.
        """
        self.append(f"w{index}")
        self.buckets.on_their_way.discard(index)
        if index % 2:
            return result
        flat.copy_(result)
        return True


def play(answer: Answer, buckets: Layout, backwards: Layout) -> Observed:
    """Run imitated backwards, in which the gradients become ready in these orders.

    The gradient of parameter i is i + 1. In "flat", a bucket that never started is [].
    """
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(1 + max(chain(*buckets)))]
    filled = Buckets(parameters, buckets)
    notes = Notes(filled)
    reducer = answer(filled, notes.start)
    for backward in backwards:
        torch.optim.SGD(parameters).zero_grad()
        reducer.begin()
        for i in backward:
            parameters[i].grad = torch.full((1,), i + 1.0)
            notes.append(f"g{i}")
            reducer.ready(parameters[i])
        notes.append("|")
        over = len(notes)
        reducer.wait()
        notes[over:] = sorted(notes[over:])  # sorted, because any order of waits is right
    number = {id(p): i for i, p in enumerate(parameters)}
    return {
        "events": " ".join(notes),
        "flat": [
            flat.int().tolist() if f"s{i}" in notes else [] for i, flat in enumerate(filled.flat)
        ],
        "order": [number.get(id(p), "no parameter") for p in reducer.order],
        "collected in flight": sorted(filled.touched),
    }


def expected(buckets: Layout, backwards: Layout) -> Observed:
    """Return the right observations of `play`.

    A bucket starts as soon as all its gradients and all gradients of earlier buckets are ready. If
    one of these gradients is never ready, the bucket never starts.
    """
    events: list[str] = []
    for backward in backwards:
        due = [list(chain(*buckets[: i + 1])) for i in range(len(buckets))]
        last = [max(map(backward.index, each)) for each in due if set(each) <= set(backward)]
        for at, parameter in enumerate(backward):
            events += [f"g{parameter}", *(f"s{i}" for i, when in enumerate(last) if when == at)]
        events += ["|", *(f"w{i}" for i in range(len(last)))]
    started = [i for i in range(len(buckets)) if f"s{i}" in events]
    flat = [[10 * (j + 1) for j in b] if i in started else [] for i, b in enumerate(buckets)]
    return {
        "events": " ".join(events),
        "flat": flat,
        "order": backwards[-1],
        "collected in flight": [],
    }
