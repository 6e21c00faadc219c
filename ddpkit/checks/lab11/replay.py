"""Lab 11: a replay of all stages' plans: the first flaw, or the time of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ddpkit.errors import LessonError
from ddpkit.exercises.exercise import Observed
from ddpkit.simulate.step.pipeline import Op, held, op_name, pipeline_time, waits_for_ever
from ddpkit.text import count

FORWARD, BACKWARD = 20, 40  # ms


def replayed(observed: Observed, stages: int, micro: int) -> Observed:
    """Replay the plans of all stages.

    The observations are the first flaw of the plans, or the time of a step and the number of
    micro-batches that each stage holds.
    """
    plans = observed["plans"]
    if not isinstance(plans, list) or len(plans) != stages:
        raise LessonError(
            f"the answer must be a list with a plan for each of {count(stages, 'stage')}"
        )
    if flaw := _flaw(plans, micro):
        return {"step": flaw, "flaw": flaw, "plans": plans}
    if stuck := waits_for_ever(plans):
        stage, op = next(iter(stuck.items()))
        told = {"step": "waits for ever", "flaw": "waits for ever", "plans": plans}
        return {**told, "stage": stage, "awaited": op_name(op)}
    trace = pipeline_time(plans, forward=FORWARD / 1e3, backward=BACKWARD / 1e3)
    ms, most = (trace.end_ns - trace.start_ns) / 1e6, [held(plan) for plan in plans]
    return {"step": in_words(ms, most), "flaw": "", "ms": ms, "held": most, "plans": plans}


def in_words(ms: float, most: Sequence[int]) -> str:
    """Return a text with the time of a step, and the most micro-batches that each stage holds."""
    return f"{ms:g} ms, held {' '.join(map(str, most))}"


def _flaw(plans: Any, micro: int) -> str:
    """Return a short text about the first flaw of the plans, or ""."""
    for stage, plan in enumerate(plans):
        if not isinstance(plan, list):
            return f"stage {stage}: no list"
        for place, op in enumerate(plan):
            if what := _no_op(op):
                return f"stage {stage}, [{place}]: {what}"
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
    return ""


def _no_op(op: object) -> str:
    """Return a text about the flaw of one operation, or ""; a list is accepted as a tuple."""
    if not isinstance(op, tuple | list) or len(op) != 2:
        return "no pair"
    if op[0] not in ("F", "B"):
        return "neither F nor B"
    return "" if type(op[1]) is int else "no int"
