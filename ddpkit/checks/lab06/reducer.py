"""Lab 06: a reducer told by hand which gradients are ready, with averages that only take notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]


class Buckets:
    """What `Reducer` needs of lab 05's GradientBuckets, one element for each parameter."""

    def __init__(self, parameters: Sequence[Any], buckets: Sequence[Sequence[int]]) -> None:
        import torch

        self.parameters = [[parameters[place] for place in bucket] for bucket in buckets]
        self.flat = [torch.zeros(len(bucket)) for bucket in buckets]
        self.views = [[flat[i : i + 1] for i in range(len(flat))] for flat in self.flat]

    def collect(self, i: int) -> None:
        for p, view in zip(self.parameters[i], self.views[i], strict=True):
            view.copy_(p.grad) if p.grad is not None else view.zero_()
            p.grad = None if p.grad is None else view


@dataclass
class Notes:
    """What happened, in order: "g2" gradient 2 was ready, "s0" bucket 0 was started, "|" backward
    was over, "w0" bucket 0 was waited for."""

    events: list[str] = field(default_factory=list)

    def start(self, bucket: Any) -> Any:
        flat, index = bucket.buffer(), bucket.index()
        self.events.append(f"s{index}")
        return SimpleNamespace(wait=partial(self.wait, flat, flat * 10, index))

    def wait(self, flat: Any, result: Any, index: int) -> Any:
        """Ten times what the bucket held as it was started. As a Work, which changes it in place
        and gives True; of every second bucket as a hook that gives a new tensor."""
        self.events.append(f"w{index}")
        if index % 2:
            return result
        flat.copy_(result)
        return True


Layout = Sequence[Sequence[int]]  # the parameters of each bucket, or of each backward in order


def play(answer: Answer, buckets: Layout, backwards: Layout) -> Observed:
    """Backwards in which gradients become ready in these orders: parameter i's is i + 1."""
    import torch

    count = sum(map(len, buckets))
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(count)]
    place = {id(p): i for i, p in enumerate(parameters)}
    notes, there = Notes(), Buckets(parameters, buckets)
    reducer = answer(there, notes.start)
    for backward in backwards:
        for p in parameters:
            p.grad = None
        reducer.begin()
        for i in backward:
            parameters[i].grad = torch.full((1,), i + 1.0)
            notes.events.append(f"g{i}")
            reducer.ready(parameters[i])
        notes.events.append("|")
        backward_ends = len(notes.events)
        reducer.wait()
        notes.events[backward_ends:] = sorted(notes.events[backward_ends:])  # in any order
    return {
        "events": " ".join(notes.events),
        "flat": [flat.int().tolist() for flat in there.flat],
        "order": [place[id(p)] for p in reducer.order],
    }


def expected(buckets: Layout, backwards: Layout) -> Observed:
    """By the rule: a bucket starts when it is complete and all before it have started."""
    events: list[str] = []
    for backward in backwards:
        here: set[int] = set()
        started = 0
        for i in backward:
            here.add(i)
            events.append(f"g{i}")
            while started < len(buckets) and here.issuperset(buckets[started]):
                events.append(f"s{started}")
                started += 1
        events += ["|", *(f"w{i}" for i in range(started))]
    flat = [[10 * (i + 1) for i in bucket] for bucket in buckets]
    return {"events": " ".join(events), "flat": flat, "order": list(backwards[-1])}


def hint(wanted: Observed, seen: Observed) -> str | None:
    if "error" in seen:
        return None
    if seen["events"] != wanted["events"]:
        return _of_events(seen["events"].split(), wanted["events"].split())
    if seen["flat"] != wanted["flat"]:
        if not any(value for values in seen["flat"] for value in values):
            return "collect(i) before you start bucket i: what is not collected is not averaged."
        if set(seen["flat"][0]) == {1}:
            return "What a Work's wait() returns is True, and no tensor: copy a tensor only."
        return "A hook's wait() may return a new tensor: copy it into flat[i] of its bucket."
    if seen["order"] != wanted["order"]:
        return "self.order lists the parameters as their gradients became ready: add each."
    return None


def _of_events(events: list[str], right: list[str]) -> str:
    starts = [event for event in events if event.startswith("s")]
    wanted = [event for event in right if event.startswith("s")]
    if any(event.startswith("w") for event in events[: events.index("|")]):
        return (
            "It waits inside the hook: backward stands still meanwhile, and nothing overlaps. "
            "Wait in wait() alone."
        )
    if not starts:
        return "No bucket was started: start it when the last of its gradients is ready."
    if events.index("|") < events.index(starts[0]):
        return (
            "All is started after backward, so nothing overlaps. Start a bucket in ready(), with "
            "its last gradient."
        )
    if sorted(starts) == sorted(wanted) and starts != wanted:
        return (
            f"The buckets start in the order in which they are complete ({' '.join(starts)}). "
            "Another rank may see another order: bucket 1 must wait for bucket 0."
        )
    if len(starts) > len(wanted):
        return "A bucket was started twice."
    if len(starts) < len(wanted):
        return (
            "A bucket never starts. One ready gradient may complete a bucket while later ones are "
            "complete already: go on as long as the next one can start."
        )
    if starts == wanted and [e for e in events if e[0] != "w"] != [e for e in right if e[0] != "w"]:
        return "A bucket starts with its last gradient: not earlier, and not later."
    return "After backward wait once for each bucket that was started."
