"""Deaths of ranks. A trace keeps the deaths in its facts, and pictures mark them."""

from __future__ import annotations

from collections.abc import Mapping

from ddpkit.trace.span import Scalar

UNENDED = "unended"  # key in a span's args: the rank was ended during the call


def death_fact(rank: int, ns: int) -> dict[str, Scalar]:
    """Return the fact, for a trace, that `rank` died at the trace's time `ns`."""
    return {_fact(rank): ns}


def died_ns(facts: Mapping[str, Scalar], rank: int) -> int | None:
    """Return the time at which a rank died, in ns of the trace; None if the rank did not die."""
    ns = facts.get(_fact(rank))
    return ns if isinstance(ns, int) else None


def _fact(rank: int) -> str:
    return f"death of rank {rank}"
