"""Names of ranks, such as "server" for rank 0. A trace keeps these names in its facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpkit.errors import TraceError
from ddpkit.trace.span import Scalar
from ddpkit.trace.trace import Trace


def with_names(trace: Trace, names: Mapping[int, str]) -> Trace:
    """Return the trace with names for ranks, which pictures and texts show.

    Raises TraceError for a rank that does not exist, or a name that is no text.
    """
    for rank, name in names.items():
        if rank not in trace.ranks:
            raise TraceError(
                f"names={{{rank!r}: {name!r}}}: there is no rank {rank!r}, only 0 to "
                f"{trace.world_size - 1}"
            )
        if not isinstance(name, str) or not name:
            raise TraceError(
                f"names={{{rank}: {name!r}}}: a name is a string with at least one character, "
                "as in {0: 'server'}"
            )
    named = {_fact(rank): name for rank, name in names.items()}
    return replace(trace, facts={**trace.facts, **named})


def name_of(facts: Mapping[str, Scalar], rank: int) -> str:
    """Return the name of a rank from a trace's facts: "server", or "rank 0" if it has no name."""
    return str(facts.get(_fact(rank), f"rank {rank}"))


def _fact(rank: int) -> str:
    return f"name of rank {rank}"
