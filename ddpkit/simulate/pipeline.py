"""Schedules of a pipeline as data, and their time: which micro-batch a stage works on, and when.

A model is cut into layers, and a batch into micro-batches. A plan is what one rank does, in order,
as a list of operations:

    ("F", 3)     micro-batch 3 forward, through the rank's own layer
    ("B", 3)     its backward; where the plan has a ("W", 3) too, for the layer's input alone
    ("W", 3)     its backward for the layer's parameters, which no other rank waits for
    ("F", 3, 5)  through layer 5: a rank may have several, and which rank has it is up to the plans

Layer l passes what its forward made on to layer l + 1, and its backward a gradient to layer l - 1.
Messages move by the rules of `ddpkit.link`, as those of ranks do: a rank posts a receive when it
comes to the operation that needs it, and goes on at once after a send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate.network import Network
from ddpkit.trace import Span, Trace, match_peers

Op: TypeAlias = tuple[str, int] | tuple[str, int, int]
Plan: TypeAlias = Sequence[Op]
Place: TypeAlias = tuple[str, int, int]  # an operation with its layer

_NAME = re.compile(r"([FBW])(\d{1,9})(?:@(\d{1,9}))?")


def gpipe(stage: int, stages: int, micro: int) -> list[Op]:
    """All forwards, then all backwards.

    Source: Huang et al., GPipe, 2018.
    """
    return [*(("F", i) for i in range(micro)), *(("B", i) for i in range(micro))]


def one_f_one_b(stage: int, stages: int, micro: int, warm_up: int | None = None) -> list[Op]:
    """One backward after each forward, and first as few forwards as the stages behind need.

    ``warm_up`` is how many forwards go first, ``stages - 1 - stage`` if not given.
    Source: Narayanan et al., PipeDream, 2019; without its weight versions, Megatron-LM, 2021.
    """
    first = min(micro, stages - 1 - stage if warm_up is None else warm_up)
    plan: list[Op] = [("F", i) for i in range(first)]
    for i in range(micro - first):
        plan += [("F", first + i), ("B", i)]
    return [*plan, *(("B", i) for i in range(micro - first, micro))]


def eager(stage: int, stages: int, micro: int) -> list[Op]:
    """1F1B with twice the warm-up: it hides messages, and holds more."""
    return one_f_one_b(stage, stages, micro, 2 * (stages - 1 - stage))


def zero_bubble(stage: int, stages: int, micro: int) -> list[Op]:
    """ZB-H1: 1F1B, its backwards split; a rank's W waits until ``stage`` others have gathered.

    Source: Qi et al., Zero Bubble Pipeline Parallelism, 2023, section 2.
    """
    plan: list[Op] = []
    later = 0  # the first W that is still to do
    for op in one_f_one_b(stage, stages, micro):
        plan.append(op)
        if op[0] == "B" and (op[1] - later >= stage or ("F", micro - 1) in plan):
            plan.append(("W", later))
            later += 1
    return [*plan, *(("W", i) for i in range(later, micro))]


def interleaved(stage: int, stages: int, micro: int, chunks: int = 2) -> list[Op]:
    """1F1B where a rank has ``chunks`` layers, ``stages`` apart: layer ``chunk * stages + stage``.

    Raises ValueError unless ``stages`` divides ``micro``.
    Source: Narayanan et al., Megatron-LM, 2021, section 2.2.
    """
    if micro % stages:
        raise ValueError(f"interleaved stages need micro-batches by the {stages}: not {micro}")

    def op(kind: str, number: int) -> Op:
        turn, place = divmod(number, stages * chunks)
        chunk, i = divmod(place, stages)
        return (
            kind,
            turn * stages + i,
            (chunk if kind == "F" else chunks - 1 - chunk) * stages + stage,
        )

    whole = micro * chunks
    first = min(whole, 2 * (stages - 1 - stage) + (chunks - 1) * stages)
    plan = [op("F", k) for k in range(first)]
    for k in range(whole - first):
        plan += [op("F", first + k), op("B", k)]
    return [*plan, *(op("B", k) for k in range(whole - first, whole))]


PIPELINES: dict[str, Callable[[int, int, int], list[Op]]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager 1f1b": eager,
    "interleaved": interleaved,
    "zero bubble": zero_bubble,
}


def pipeline_plans(name: str, stages: int, micro: int) -> list[list[Op]]:
    """The plans of all ranks, by the name of a schedule in `PIPELINES`.

    Raises ValueError for another name, and for fewer than one stage or micro-batch.
    """
    if name not in PIPELINES:
        raise ValueError(f"there is no pipeline {name!r}: it is one of {', '.join(PIPELINES)}")
    if stages < 1 or micro < 1:
        raise ValueError(f"a pipeline has stages and micro-batches: {stages=}, {micro=}")
    return [PIPELINES[name](stage, stages, micro) for stage in range(stages)]


def held(plan: Plan) -> int:
    """The most micro-batches of which a rank keeps activations at one time.

    A forward keeps them until the backward of the same layer is over: until its W, if there is one.
    """
    split = {op[1:] for op in plan if op[0] == "W"}
    now = most = 0
    for kind, *which in plan:
        now += kind == "F"
        now -= kind == "W" or (kind == "B" and tuple(which) not in split)
        most = max(most, now)
    return most


def pipeline_time(
    plans: Sequence[Plan],
    *,
    forward: str | float = "20 ms",
    backward: str | float = "40 ms",
    weights: str | float | None = None,
    link: LinkSpec = "unlimited",
    nbytes: int = 0,
    blocking: bool = False,
) -> Trace:
    """The trace of a pipeline's step: every operation and message of every rank, by their plans.

    ``forward``, ``backward`` and ``weights`` are times ("20 ms", or seconds) of one micro-batch in
    one layer: of F, of the whole backward, and of W, by default half of the backward; where a plan
    has a W, its B takes the rest. A message has ``nbytes`` bytes. ``blocking``: a rank goes on
    after a send only when it is done, as with `send` in place of `isend`.

    Raises ValueError if ranks wait for ever, and names what each waits for.
    """
    whole = _ns(backward)
    times = _ns(forward), whole, whole // 2 if weights is None else _ns(weights)
    played = _Played(plans, times, Links.parse(link, len(plans)), nbytes, blocking)
    played.run()
    if stuck := played.stuck():
        waits = ", ".join(f"rank {rank} for {op_name(op)}" for rank, op in stuck.items())
        raise ValueError(f"these plans wait for ever: {waits}")
    facts = {"backend": "simulated", "emulated": str(played.network.links)}
    return Trace(match_peers(played.spans), len(plans), facts)


def waits_for_ever(plans: Sequence[Plan], *, blocking: bool = False) -> dict[int, Op]:
    """What ranks wait for that never comes, as operations of other ranks; empty if all get through.

    With ``blocking`` a rank may also wait in a send: for the operation that would receive it.
    """
    played = _Played(plans, (1, 2, 1), Links.parse("unlimited", len(plans)), 0, blocking)
    played.run()
    return played.stuck()


def op_name(op: Op) -> str:
    """The name of an operation's span: "F3", or "F3@5" where it names its layer."""
    kind, micro, *layer = op
    return f"{kind}{micro}" + "".join(f"@{each}" for each in layer)


def op_of(text: str) -> Op | None:
    """The operation of that name; None if it is none."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    kind, micro, layer = found.groups()
    return (kind, int(micro)) if layer is None else (kind, int(micro), int(layer))


def bubbles(trace: Trace) -> list[float]:
    """The share of the step in which each rank works on no micro-batch, by rank.

    The step is from the first operation of any rank to the last one's end; operations are the spans
    named as `op_name` does, in a simulated trace or a recorded one. Raises ValueError if there is
    none.
    """
    ops = [span for span in trace.spans if span.is_compute and op_of(span.name)]
    if not ops:
        raise ValueError("this trace has no spans that are named F0, B0, …")
    step = max(span.end_ns for span in ops) - min(span.start_ns for span in ops)
    busy = [sum(span.duration_ns for span in ops if span.rank == rank) for rank in trace.ranks]
    return [1 - each / step for each in busy]


def _ns(time: str | float) -> int:
    return Link(latency=time).latency_ns


class _Played:
    """Plans that are carried out on a network, each by its rank."""

    def __init__(
        self,
        plans: Sequence[Plan],
        times: tuple[int, int, int],
        links: Links,
        nbytes: int,
        blocking: bool,
    ) -> None:
        """``times`` in ns: forward, the whole backward, and what of it W takes."""
        self.forward, self.backward, self.weights = times
        self.plans = [[_placed(op, rank) for op in plan] for rank, plan in enumerate(plans)]
        self.network, self.nbytes, self.blocking = Network(links), nbytes, blocking
        self.owner = {op[2]: rank for rank, plan in enumerate(self.plans) for op in plan}
        self.split = {op[1:] for plan in self.plans for op in plan if op[0] == "W"}
        self.at = [0] * len(plans)  # the place in its plan at which each rank is
        self.sending = [False] * len(plans)  # it waits in the send after the operation before
        self.done: set[Place] = set()
        self.spans: list[Span] = []

    def run(self) -> None:
        """Let all ranks come as far as they come."""
        for rank in range(len(self.plans)):
            self.come_to(rank, 0)
        self.network.advance()

    def stuck(self) -> dict[int, Op]:
        waiting = {}
        for rank, plan in enumerate(self.plans):
            if self.sending[rank]:
                waiting[rank] = self.taken_by(plan[self.at[rank] - 1])
            elif self.at[rank] < len(plan):
                waiting[rank] = self.needs(plan[self.at[rank]])
        return {rank: self.short(op) for rank, op in waiting.items() if op is not None}

    def needs(self, op: Place) -> Place | None:
        """The operation that makes what this one takes; None if it takes nothing."""
        kind, micro, layer = op
        if kind == "W":
            return "B", micro, layer
        if kind == "F":
            return ("F", micro, layer - 1) if layer - 1 in self.owner else None
        return ("B", micro, layer + 1) if layer + 1 in self.owner else ("F", micro, layer)

    def taken_by(self, op: Place) -> Place | None:
        """The operation that takes what this one makes; None if none does."""
        kind, micro, layer = op
        after = layer + {"F": 1, "B": -1, "W": 0}[kind]
        return (kind, micro, after) if kind != "W" and after in self.owner else None

    def short(self, op: Place) -> Op:
        """The operation as its own rank's plan has it."""
        alone = sum(rank == self.owner[op[2]] for rank in self.owner.values()) == 1
        return op[:2] if alone and op[2] == self.owner[op[2]] else op

    def come_to(self, rank: int, ns: int) -> None:
        """Let a rank take its next operation: receive what it needs, and begin."""
        if self.at[rank] == len(self.plans[rank]):
            return
        op = self.plans[rank][self.at[rank]]
        needed = self.needs(op)
        if needed is None:
            self.work(rank, op, ns)
        elif (source := self.owner[needed[2]]) == rank:
            if needed in self.done:
                self.work(rank, op, ns)
        else:
            end = self.network.recv(ns, "", rank, source, self.nbytes, _tag(needed))

            def received(_: object) -> None:
                self.message("recv", rank, source, needed, ns, end.done_ns)
                self.work(rank, op, end.done_ns)

            end.then = received

    def work(self, rank: int, op: Place, ns: int) -> None:
        """Let a rank do an operation, and send what it has made."""
        end_ns = ns + self.duration(op)
        facts = {"micro": op[1], "layer": op[2]}
        own = Span(rank, "compute", op_name(self.short(op)), "span", ns, end_ns, args=facts)
        self.spans.append(own)
        self.done.add(op)
        self.at[rank] += 1
        taken = self.taken_by(op)
        peer = rank if taken is None else self.owner[taken[2]]
        if peer == rank:
            self.come_to(rank, end_ns)
            return
        end = self.network.send(end_ns, "", rank, peer, self.nbytes, _tag(op))
        self.sending[rank] = self.blocking

        def sent(_: object) -> None:
            self.message("send" if self.blocking else "isend", rank, peer, op, end_ns, end.done_ns)
            if self.blocking:
                self.sending[rank] = False
                self.come_to(rank, end.done_ns)

        end.then = sent
        if not self.blocking:
            self.come_to(rank, end_ns)

    def duration(self, op: Place) -> int:
        kind, *which = op
        if kind == "F":
            return self.forward
        rest = self.backward - self.weights if tuple(which) in self.split else self.backward
        return self.weights if kind == "W" else rest

    def message(self, how: str, rank: int, peer: int, op: Place, start: int, end: int) -> None:
        blocked = start if how in ("recv", "send") else None
        facts = {"micro": op[1], "tag": _tag(op)}
        self.spans.append(
            Span(rank, "comm", how, "comm", start, end, self.nbytes, peer, blocked_ns=blocked,
                 args=facts)
        )  # fmt: skip


def _placed(op: Op, rank: int) -> Place:
    return (*op, rank) if len(op) == 2 else op


def _tag(op: Place) -> int:
    """A number of a message for each operation that makes one."""
    kind, micro, layer = op
    return 2 * (micro * 4096 + layer) + (kind == "B")
