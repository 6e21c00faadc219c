"""Lab 11: plans of all stages, carried out: what is wrong with them, or how long they take."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ddpkit.exercises.exercise import Observed
from ddpkit.simulate.pipeline import Op, held, op_name, pipeline_time, waits_for_ever

FORWARD, BACKWARD = 20, 40  # ms


def replayed(observed: Observed, micro: int) -> Observed:
    """What plans of all stages make of a step: the first flaw, or its time and what is held."""
    plans = observed["plans"]
    told = {"flaw": _flaw(plans, micro), "step in ms": 0.0, "held": [], "plans": plans}
    if told["flaw"] != "none":
        return told
    if stuck := waits_for_ever(plans):
        stage, op = next(iter(stuck.items()))
        return {**told, "flaw": "waits for ever", "stage": stage, "awaited": op_name(op)}
    trace = pipeline_time(plans, forward=FORWARD / 1e3, backward=BACKWARD / 1e3)
    step = (trace.end_ns - trace.start_ns) / 1e6
    return {**told, "step in ms": step, "held": [held(plan) for plan in plans]}


def _flaw(plans: Any, micro: int) -> str:
    """What is wrong with the plans as they stand, in a few words; "none" if nothing is."""
    for stage, plan in enumerate(plans):
        if not isinstance(plan, list) or not all(map(_is_op, plan)):
            return f"stage {stage}: not a list of pairs (kind, micro-batch)"
        counts = Counter(map(tuple, plan))
        for op, times in counts.items():
            if not 0 <= op[1] < micro:
                return f"stage {stage}: {op_name(op)} of {micro} micro-batches"
            if times > 1:
                return f"stage {stage}: {op_name(op)} twice"
        missing: list[Op] = [(kind, i) for i in range(micro) for kind in "FB"]
        missing = [op for op in missing if op not in counts]
        if missing:
            return f"stage {stage}: no {op_name(missing[0])}"
        order = {tuple(op): place for place, op in enumerate(plan)}
        for i in range(micro):
            if order["B", i] < order["F", i]:
                return f"stage {stage}: B{i} before F{i}"
    return "none"


def _is_op(op: Any) -> bool:
    """Whether it is a pair of a kind and a number; a list in place of a tuple will do."""
    pair = isinstance(op, tuple | list) and len(op) == 2
    return pair and op[0] in ("F", "B") and type(op[1]) is int
