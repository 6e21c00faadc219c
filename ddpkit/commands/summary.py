"""The report of a run: tables of time, then speed, work and price. JSON has the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddpkit.cluster import Run
from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.trace.copies import copy_totals
from ddpkit.trace.memory import MEMORY_KINDS
from ddpkit.trace.work import WorkDone, step_work
from ddpkit.view.drawing.typical import typical_step
from ddpkit.view.drawing.words import ms
from ddpkit.view.timeline.model import timeline_model

HOUR_NS = 3600e9
STEPS = 1000  # the report's second price is the price of this number of steps


def summary(done: Run[None], price: float | None = None) -> str:
    """Return the table of a run's time, the parts of a typical step, and the step's work.

    price  the price of a rank's machine for an hour
    """
    trace = done.trace
    shown = [None, typical_step(trace, None)] if trace.steps > 1 else [None]
    texts = [timeline_model(trace, step).text for step in shown]
    if trace.steps:
        texts[-1] = "\n".join([texts[-1], *map(prose, _speed(trace, price))])
    return "\n\n".join(texts)


def all_numbers(
    trace: Trace, price: float | None = None, step: int | None = None
) -> dict[str, Any]:
    """Return the numbers of a run and of a step for a JSON file, with times in seconds.

    price  the price of a rank's machine for an hour
    step   the number of the step; None: the typical step

    Raises TraceError if there is no such step.
    """
    found: dict[str, Any] = {
        "ranks": trace.job_size,
        "facts": dict(trace.facts),
        "steps": trace.steps,
        "run": {"by_rank": by_rank(trace)},
    }
    if trace.steps or step is not None:
        chosen = typical_step(trace, None) if step is None else step
        number = trace.steps + chosen if chosen < 0 else chosen
        work = step_work(trace, number)
        if not work:  # all ranks failed, so none has counted the work of a step
            return found
        found["step"] = {
            "number": number,
            **_totals(work, _copies(trace)),
            "by_rank": by_rank(trace.step(number)),
        }
        if price is not None:
            found["step"]["price"] = _price(trace.job_size, _seconds(work), price)
    return found


def by_rank(trace: Trace) -> list[dict[str, Any]]:
    """Return the parts of each rank's time, its highest memory, its collectives and its copies.

    The fields "copy" and "copies" are there only if some rank has copies.
    """
    found = []
    parts = trace.breakdown()
    some_copies = any(span.is_copy for span in trace.spans)
    for rank in trace.recorded_ranks:
        breakdown = parts[rank]
        peak, collectives = trace.peak(rank), trace.traffic.collectives(rank)
        known = None if peak is None else dict(zip(MEMORY_KINDS, peak.nbytes, strict=True))
        found.append(
            {
                "rank": rank,
                "seconds": breakdown.step_ns / 1e9,
                "compute_only": breakdown.compute_only_ns / 1e9,
                "overlapped": breakdown.overlapped_ns / 1e9,
                "exposed": breakdown.exposed_ns / 1e9,
                "idle": breakdown.idle_ns / 1e9,
                **({"copy": breakdown.copy_ns / 1e9} if some_copies else {}),
                "memory_bytes": known,
                "collectives": {
                    name: {"times": each.times, "bytes": each.bytes}
                    for name, each in collectives.items()
                },
                **({"copies": _copied(trace, rank)} if some_copies else {}),
            }
        )
    return found


def _copied(trace: Trace, rank: int) -> dict[str, dict[str, float]]:
    """Return the copies of a rank between host and device, by direction."""
    activity = trace.activity(rank)
    others = [*activity.compute, *activity.comm]
    return {
        direction: {
            "times": each.times,
            "bytes": each.bytes,
            "seconds": each.ns / 1e9,
            "hidden": each.hidden_ns / 1e9,
        }
        for direction, each in copy_totals(trace.of(rank), activity.window, others).items()
    }


def _copies(trace: Trace) -> int:
    """Return the number of ranks of the job that each rank of the trace stands for."""
    return trace.job_size // trace.world_size


def _totals(work: Mapping[int, WorkDone], copies: int) -> dict[str, Any]:
    seconds = _seconds(work)
    busiest = max(work.values(), key=lambda each: each.flops)
    amounts = _amounts(work, copies)
    return {
        "seconds": seconds,
        "steps_per_second": 1 / seconds if seconds else None,
        "amounts": {
            name: {"per_step": total, "per_second": total / seconds if seconds else None}
            for name, total in amounts.items()
        },
        "flops_of_a_rank": busiest.flops,
        "recomputed_flops_of_a_rank": busiest.recomputed_flops,
        "model_flops_utilization": busiest.model_share,
        "hardware_flops_utilization": busiest.hardware_share,
        "launches_of_a_rank": busiest.launches,
        "host_seconds_of_a_rank": busiest.host_ns / 1e9,
        "host_is_the_limit": busiest.host_is_the_limit,
    }


def _speed(trace: Trace, price: float | None) -> list[str]:
    """Return the lines on speed, work and price of the typical step."""
    work = step_work(trace, typical_step(trace, None))
    seconds, found = _seconds(work), []
    if not seconds:
        return []
    rates = [f"{_number(1 / seconds)} steps/s"]
    copies = _copies(trace)
    for name, total in _amounts(work, copies).items():
        each = total / seconds
        mine = each / (copies * len(work))
        rates.append(f"{_number(each)} {name}/s ({_number(mine)} on each rank)")
    if len(rates) > 1 or price is not None:
        found.append(f"Speed: {', '.join(rates)}.")
    busiest = max(work.values(), key=lambda each: each.flops)
    if busiest.flops:
        again = ""
        if busiest.recomputed_flops:
            again = (
                f"; {100 * busiest.hardware_share:.1f} % with the "
                f"{_number(busiest.recomputed_flops, 'FLOP')} that the backward repeats"
            )
        found.append(
            f"Work: {_number(busiest.flops, 'FLOP')} in a step of a rank, "
            f"{100 * busiest.model_share:.1f} % of the machine's peak{again}."
        )
    if busiest.host_is_the_limit:
        found.append(
            f"The host is the limit: its work takes {ms(busiest.host_ns)} of the step's "
            f"{ms(busiest.duration_ns)}, for {busiest.launches:,} launches. Fewer, larger "
            "operations shorten the step; a faster device does not."
        )
    if price is not None:
        costs = _price(trace.job_size, seconds, price)
        found.append(
            f"Price: {_number(costs['step'])} for a step, {_number(costs['thousand_steps'])} for "
            f"{STEPS:,} steps of {trace.job_size} machines at {price:g} an hour."
        )
    return found


def _seconds(work: Mapping[int, WorkDone]) -> float:
    return max(each.duration_ns for each in work.values()) / 1e9 if work else 0.0


def _amounts(work: Mapping[int, WorkDone], copies: int) -> dict[str, float]:
    """Return the sum of each amount, such as tokens; a recorded rank counts `copies` times."""
    names = dict.fromkeys(name for each in work.values() for name in each.amounts)
    return {
        name: copies * sum(each.amounts.get(name, 0.0) for each in work.values()) for name in names
    }


def _price(ranks: int, seconds: float, price: float) -> dict[str, float]:
    step = price * ranks * seconds * 1e9 / HOUR_NS
    return {"step": step, "thousand_steps": STEPS * step}


def _number(value: float, unit: str = "") -> str:
    """Return a number in three digits: "2.5 MFLOP" for 2_500_000 and the unit "FLOP".

    Without a unit the number has no prefix.
    """
    prefixes = ("", "k", "M", "G", "T", "P", "E") if unit else ("",)
    for prefix in prefixes[:-1]:
        if value < 999.5:
            return f"{value:.3g} {prefix}{unit}".strip()
        value /= 1000
    return f"{value:.3g} {prefixes[-1]}{unit}".strip() if value < 999.5 else f"{value:,.0f}"
