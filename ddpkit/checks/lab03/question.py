"""An all-reduce put to an answer: what a right one does, and what this one did.

What an algorithm sends is written once, in its schedule (`ddpkit.simulate`): expected bytes, peers
and latencies are taken from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did, together
from ddpkit.simulate import Schedule, Send, schedule
from ddpkit.trace import latencies


@dataclass(frozen=True)
class Way:
    """One of the six, and what to say to an answer that goes another way."""

    name: str
    points: int
    about: str
    a: str  # "a ring"
    lacks: str  # what to do if a sum lacks somebody's part
    twice: str  # ... if a part is in it twice
    much: str  # ... if it sends too much
    row: str = "Do not wait for a send before you receive: isend, then recv, then wait."
    alone: str = ""  # ... if no two parts have met
    settled: bool = True  # which rank sends what to whom; a tree may stand in several ways
    same_bits: bool = True  # on all ranks


@dataclass(frozen=True)
class Sent:
    """What the ranks sent."""

    bytes: list[int]  # by rank
    messages: list[int]
    to: str  # "0→1 1→0"
    latencies: int
    collectives: tuple[str, ...] = ()


def _by_plan(plan: Schedule, itemsize: int) -> Sent:
    ranks = range(plan.world_size)
    pairs = sorted({(step.rank, step.peer) for step in plan.steps if isinstance(step, Send)})
    return Sent(
        [plan.sent(rank) * itemsize for rank in ranks],
        [plan.messages(rank) for rank in ranks],
        " ".join(f"{a}→{b}" for a, b in pairs),
        plan.rounds,
    )


def _by_answer(did: Did) -> Sent:
    in_a_row = latencies(did.trace.spans)
    return Sent(did.bytes, did.messages, did.to, in_a_row, tuple(did.collectives))


@dataclass(frozen=True)
class Question:
    """All-reduces of several tensors by one number of ranks, one after the other in one run."""

    way: Way
    inputs: list[list[Any]]  # of each tensor, by rank
    fractions: list[Any] | None = None  # by rank: a tensor whose sum depends on the order of adding

    @property
    def n(self) -> int:
        return len(self.inputs[0])

    @property
    def names(self) -> list[str]:
        return names_of(self.inputs)

    @cached_property
    def totals(self) -> list[Any]:
        return [sum(tensor[1:], tensor[0].clone()) for tensor in self.inputs]

    @cached_property
    def expect(self) -> Observed:
        plans = [
            _by_plan(schedule(self.way.name, self.n, x.numel()), x.element_size())
            for x, *_ in self.inputs
        ]
        bits = {"bits": "same"} if self.fractions else {}
        sums = dict(zip(self.names, self.totals, strict=True))
        return {**sums, "x": "kept", **bits, **_counts(plans, self.way.settled)}

    def read(self, seen: Observed) -> Observed:
        """Of each sum, which ranks may have in different ways, one that is wrong, if any is."""
        told: dict[str, Any] = {}
        for name, total in zip(self.names, self.totals, strict=True):
            by_rank = dict(zip(range(self.n), seen[name], strict=True))
            wrong = [rank for rank, got in by_rank.items() if not same(got, total)]
            told[name] = by_rank[wrong[0] if wrong else 0]
            if wrong:
                told.setdefault("on rank", wrong[0])
        return told | {name: seen[name] for name in seen if name not in told}

    def right(self, seen: Observed) -> bool:
        told = self.read(seen)
        return all(same(told[name], due) for name, due in self.expect.items())


def observe(
    answer: Callable[..., Any], inputs: list[list[Any]], fractions: list[Any] | None, settled: bool
) -> Observed:
    """Put inputs (see `Question`) to the answer: the sums that it gave, by rank; what it sent."""
    tensors = inputs + ([fractions] if fractions else [])
    calls = [[(x,) for x in by_rank] for by_rank in tensors]
    did = [told() for told in together(partial(_call, answer), calls)]
    sums = [[total for total, _ in one.returned] for one in did]
    seen: dict[str, Any] = dict(zip(names_of(inputs), sums, strict=False))
    became = {what for one in did for _, what in one.returned}
    seen["x"] = next(what for what in ("changed", "returned", "kept") if what in became)
    if fractions:
        first, *others = sums[-1]
        seen["bits"] = "same" if all(same(each, first) for each in others) else "differ"
    return seen | _counts([_by_answer(one) for one in did[: len(inputs)]], settled)


def names_of(inputs: list[list[Any]]) -> list[str]:
    """What the sums are called."""
    return [f"sum {k}" for k in range(1, len(inputs) + 1)] if inputs[1:] else ["sum"]


def _counts(sent: list[Sent], settled: bool) -> dict[str, Any]:
    """Of what was sent, that which is the same for all right answers."""
    first = sent[0]
    n = len(first.bytes)
    if n == 8:
        most = {"most by a rank": max(first.bytes), "latencies": first.latencies}
        return {"bytes": sum(first.bytes), **most}
    if n != 4:  # who is spared a round, or has a longer chunk, is free
        return {"bytes": sum(sum(each.bytes) for each in sent)}
    by_rank, to = (first.bytes, first.messages), first.to
    if not settled:
        by_rank = sorted(first.bytes, reverse=True), sorted(first.messages, reverse=True)
        to = "parents, children"
    counts = dict(zip(("bytes", "messages"), by_rank, strict=True))
    return {**counts, "to": " ".join([to, *first.collectives]), "latencies": first.latencies}


def _call(answer: Callable[..., Any], x: Any) -> tuple[Any, str]:
    """On a rank: what the answer returns, and what became of x.

    A tensor with two dimensions is given to it transposed, so it is not contiguous.
    """
    import torch

    given = x.t().contiguous().t() if x.dim() == 2 else x.clone()
    total = answer(given)
    if not torch.equal(given, x):
        return total, "changed"
    if isinstance(total, torch.Tensor) and x.numel():
        is_x = total.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
    else:
        is_x = total is given
    return total, "returned" if is_x else "kept"


def inputs_for(n: int, dtype: str, shape: tuple[int, ...], rng: random.Random) -> list[Any]:
    """Rank r's elements are 1, 2 or 3 times 10^r: the digits of a sum say whose parts are in it."""
    import torch

    size = torch.Size(shape).numel()
    rows = [[rng.randint(1, 3) * 10**rank for _ in range(size)] for rank in range(n)]
    return [torch.tensor(row, dtype=getattr(torch, dtype)).view(shape) for row in rows]
