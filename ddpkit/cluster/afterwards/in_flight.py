"""The text about tensors changed by the code while an operation was under way."""

from __future__ import annotations

from ddpkit.cluster.afterwards.unwaited import by_line
from ddpkit.cluster.phrases import wrapped
from ddpkit.trace import CHANGED, Trace


def changed_in_flight(trace: Trace) -> str:
    """Return a text, "The code changed the tensor of the isend in line 3 (rank 0) ...", or ""."""
    each, more = by_line(trace, CHANGED)
    if not each:
        return ""
    more = more and f", and of {more},"
    return wrapped(
        f"The code changed the tensor of {', '.join(each)}{more} before its wait(), so its values "
        "may be wrong: until wait() the network reads or writes the tensor. A strict run "
        "(strict=True, --strict) ends at the line of the change."
    )
