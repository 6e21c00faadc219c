"""Schedules of a pipeline as data (each stage's operations in order), and their time.

A model is cut into layers, and a batch into micro-batches. A plan is the work of one rank, in
order, as a list of operations:

    ("F", 3)     micro-batch 3 forward, through the rank's own layer
    ("B", 3)     micro-batch 3 backward; only for the layer's input if there is also a ("W", 3)
    ("W", 3)     micro-batch 3 backward, for the layer's parameters; no other rank waits for a W
    ("F", 3, 5)  micro-batch 3 forward, through layer 5, if a rank has several layers

Layer l passes the result of its forward to layer l + 1, and its backward a gradient to layer l - 1.
Messages move by the rules of `ddpkit.link`, as messages of ranks do: a rank posts a receive when it
comes to the operation that needs the message, and goes on at once after a send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ddpkit.asked import not_for
from ddpkit.link import LinkSpec, duration_ns
from ddpkit.simulate.engine.play import Played, play_program
from ddpkit.simulate.engine.program import Action, After, MessageEnd, Program, Work
from ddpkit.trace import Trace

Op: TypeAlias = tuple[str, int] | tuple[str, int, int]
Plan: TypeAlias = Sequence[Op]
Place: TypeAlias = tuple[str, int, int]  # an operation with its layer

_NAME = re.compile(r"([FBW])(\d{1,9})(?:@(\d{1,9}))?")


def gpipe(stage: int, stages: int, micro: int) -> list[Op]:
    """Return a stage's plan with all forwards first, then all backwards.

    Source: Huang et al., GPipe, 2018.
    """
    not_for("gpipe", "ticks")
    return [*(("F", i) for i in range(micro)), *(("B", i) for i in range(micro))]


def one_f_one_b(stage: int, stages: int, micro: int, warm_up: int | None = None) -> list[Op]:
    """Return a stage's 1F1B plan: warm-up forwards, then one backward after each forward.

    ``warm_up`` is the number of forwards that go first, ``stages - 1 - stage`` if not given.
    Source: Narayanan et al., PipeDream, 2019; without weight versions, Megatron-LM, 2021.
    """
    not_for("one_f_one_b", "gpipe", "ticks")
    first = min(micro, stages - 1 - stage if warm_up is None else warm_up)
    plan: list[Op] = [("F", i) for i in range(first)]
    for i in range(micro - first):
        plan += [("F", first + i), ("B", i)]
    return [*plan, *(("B", i) for i in range(micro - first, micro))]


def eager(stage: int, stages: int, micro: int) -> list[Op]:
    """Return a stage's 1F1B plan with twice the warm-up.

    This plan hides messages better, and keeps more activations.
    """
    return one_f_one_b(stage, stages, micro, 2 * (stages - 1 - stage))


def zero_bubble(stage: int, stages: int, micro: int) -> list[Op]:
    """Return a stage's ZB-H1 plan: 1F1B with split backwards, in which the Ws are delayed.

    A rank does a W only when more than ``stage`` of its Ws are waiting.

    Source: Qi et al., Zero Bubble Pipeline Parallelism, 2023, section 2.
    """
    plan: list[Op] = []
    later = 0  # number of the next W
    for op in one_f_one_b(stage, stages, micro):
        plan.append(op)
        if op[0] == "B" and (op[1] - later >= stage or ("F", micro - 1) in plan):
            plan.append(("W", later))
            later += 1
    return [*plan, *(("W", i) for i in range(later, micro))]


def interleaved(stage: int, stages: int, micro: int, chunks: int = 2) -> list[Op]:
    """Return a stage's interleaved 1F1B plan: the rank has the layers ``chunk * stages + stage``.

    ``chunks`` is the number of a rank's layers.

    Raises ValueError unless ``stages`` divides ``micro``.
    Source: Narayanan et al., Megatron-LM, 2021, section 2.2.
    """
    if micro % stages:
        raise ValueError(
            f"give the interleaved schedule a multiple of {stages} micro-batches (the number of "
            f"stages), not {micro}"
        )

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
    """Return the plan of each rank; ``name`` is the name of a schedule in `PIPELINES`.

    Raises ValueError for another name, and for fewer than one stage or micro-batch.
    """
    if name not in PIPELINES:
        raise ValueError(f"there is no pipeline {name!r}: choose one of {', '.join(PIPELINES)}")
    if stages < 1 or micro < 1:
        raise ValueError(f"a pipeline needs 1 stage and 1 micro-batch or more: {stages=}, {micro=}")
    return [PIPELINES[name](stage, stages, micro) for stage in range(stages)]


def held(plan: Plan) -> int:
    """Return the largest number of micro-batches for which a rank keeps activations at one time.

    The activations of a forward are kept until the backward of the same layer is over; if the plan
    has a W for it, until this W is over.
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
    """Return the trace of a pipeline's step: every operation and message of the ranks' plans.

    ``forward``, ``backward`` and ``weights`` are times of one micro-batch in one layer, as text
    ("20 ms") or in seconds. ``backward`` is the time of B and W together, and ``weights`` the time
    of W, by default half of ``backward``. Without a W, B takes all of ``backward``. A message has
    ``nbytes`` bytes. ``blocking``: a rank waits for the end of a send, as with `send` in place of
    `isend`.

    Raises ValueError if ranks wait forever, with the operations for which they wait.
    """
    whole = duration_ns(backward)
    times = duration_ns(forward), whole, whole // 2 if weights is None else duration_ns(weights)
    played = play_program(pipeline_program(plans, times, nbytes, blocking), link)
    if played.stuck:
        stuck = _stuck(plans, played)
        waits = ", ".join(f"rank {rank} for {op_name(op)}" for rank, op in stuck.items())
        raise ValueError(f"these plans block forever: {waits}")
    return played.trace()


def waits_for_ever(plans: Sequence[Plan], *, blocking: bool = False) -> dict[int, Op]:
    """Return the operations for which ranks wait forever, by rank; empty if no rank does.

    With ``blocking``, a rank may also wait in a send, until its message is received.
    """
    program = pipeline_program(plans, (1, 2, 1), 0, blocking)
    return _stuck(plans, play_program(program, "unlimited"))


def pipeline_program(
    plans: Sequence[Plan], times: tuple[int, int, int], nbytes: int = 0, blocking: bool = False
) -> Program:
    """Return the program of a pipeline's plans, see `pipeline_time`.

    ``times`` are three times in ns: the forward, the whole backward, and W, a part of the backward.
    """
    cut = _Cut(plans, times, nbytes, "send" if blocking else "isend")
    return Program.of_lanes("a pipeline", [cut.lane(rank) for rank in range(len(plans))])


def _stuck(plans: Sequence[Plan], played: Played) -> dict[int, Op]:
    cut = _Cut(plans, (0, 0, 0), 0, "send")
    found = {}
    for rank, _, step in played.stuck:
        (place,) = step.handles if isinstance(step, After) else (step.handle,)
        assert isinstance(place, tuple)
        found[rank] = cut.short(place)
    return found


def op_name(op: Op) -> str:
    """Return the name of an operation's span: "F3", or "F3@5" with a layer."""
    kind, micro, *layer = op
    return f"{kind}{micro}" + "".join(f"@{each}" for each in layer)


def op_of(text: str) -> Op | None:
    """Return the operation of a span's name, the inverse of `op_name`; None for other texts."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    kind, micro, layer = found.groups()
    return (kind, int(micro)) if layer is None else (kind, int(micro), int(layer))


def bubbles(trace: Trace) -> list[float]:
    """Return, by rank, the share of the step in which the rank works on no micro-batch.

    The step lasts from the start of the first operation on any rank to the end of the last
    operation. Operations are the spans with names in the form of `op_name`, in a simulated or a
    recorded trace. Raises ValueError for a trace without operations.
    """
    ops = [span for span in trace.spans if span.is_compute and op_of(span.name)]
    if not ops:
        raise ValueError(
            "this trace has no spans that are named F0, B0, …: mark the forward of micro-batch 0 "
            'with span("F0")'
        )
    step = max(span.end_ns for span in ops) - min(span.start_ns for span in ops)
    busy = [sum(span.duration_ns for span in ops if span.rank == rank) for rank in trace.ranks]
    return [1 - each / step for each in busy]


class _Cut:
    """A model cut into layers: the rank that owns each layer, and the messages between ranks."""

    def __init__(
        self, plans: Sequence[Plan], times: tuple[int, int, int], nbytes: int, send: str
    ) -> None:
        self.forward, self.backward, self.weights = times
        self.plans = [[_placed(op, rank) for op in plan] for rank, plan in enumerate(plans)]
        self.owner = {op[2]: rank for rank, plan in enumerate(self.plans) for op in plan}
        self.split = {op[1:] for plan in self.plans for op in plan if op[0] == "W"}
        self.nbytes, self.send = nbytes, send

    def lane(self, rank: int) -> list[Action]:
        """Return the steps of a rank's lane.

        The handle of a step is the operation that makes or uses the step's data.
        """
        lane: list[Action] = []
        for op in self.plans[rank]:
            if (needed := self.needs(op)) is not None:
                source = self.owner[needed[2]]
                lane.append(
                    After((needed,)) if source == rank else self.end("recv", source, needed)
                )
            facts = {"micro": op[1], "layer": op[2]}
            name = op_name(self.short(op))
            lane.append(Work(self.duration(op), name, handle=op, facts=facts))
            taken = self.taken_by(op)
            if taken is not None and self.owner[taken[2]] != rank:
                lane.append(self.end(self.send, self.owner[taken[2]], op, taken))
        return lane

    def end(self, how: str, peer: int, op: Place, handle: Place | None = None) -> MessageEnd:
        """Return a send or a receive of the message with the result of ``op``."""
        facts = {"micro": op[1]}
        return MessageEnd(how, peer, self.nbytes, _tag(op), handle=handle or op, facts=facts)

    def needs(self, op: Place) -> Place | None:
        """Return the operation that makes the input of `op`; None if `op` has no input."""
        kind, micro, layer = op
        if kind == "W":
            return "B", micro, layer
        if kind == "F":
            return ("F", micro, layer - 1) if layer - 1 in self.owner else None
        return ("B", micro, layer + 1) if layer + 1 in self.owner else ("F", micro, layer)

    def taken_by(self, op: Place) -> Place | None:
        """Return the operation that uses the result of `op`; None if no operation does."""
        kind, micro, layer = op
        after = layer + {"F": 1, "B": -1, "W": 0}[kind]
        return (kind, micro, after) if kind != "W" and after in self.owner else None

    def short(self, op: Place) -> Op:
        """Return the operation as its rank's plan writes it: without the layer if it is unique."""
        alone = sum(rank == self.owner[op[2]] for rank in self.owner.values()) == 1
        return op[:2] if alone and op[2] == self.owner[op[2]] else op

    def duration(self, op: Place) -> int:
        kind, *which = op
        if kind == "F":
            return self.forward
        rest = self.backward - self.weights if tuple(which) in self.split else self.backward
        return self.weights if kind == "W" else rest


def _placed(op: Op, rank: int) -> Place:
    return (*op, rank) if len(op) == 2 else op


def _tag(op: Place) -> int:
    """Return the tag of the message with the result of `op`; each operation has its own tag."""
    kind, micro, layer = op
    return 2 * (micro * 4096 + layer) + (kind == "B")
