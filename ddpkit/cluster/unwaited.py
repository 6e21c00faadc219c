"""The text about works without a wait(), printed after a run that succeeded."""

from __future__ import annotations

from collections import defaultdict

from ddpkit.cluster.phrases import ranks, wrapped
from ddpkit.text import count
from ddpkit.trace import UNWAITED, Trace

AT_MOST = 3  # lines of code that the text names


def unwaited(trace: Trace) -> str:
    """Return "Nobody waited for the all_reduce in line 3 (ranks 0, 1). Keep ...", or "".

    Works that torch's own code posted are left out.
    """
    posted: dict[tuple[int, str], set[int]] = defaultdict(set)  # ranks by line and name
    for span in trace.spans:
        line = span.args.get("line")
        if UNWAITED in span.args and isinstance(line, int) and line:
            posted[line, {"send": "isend", "recv": "irecv"}.get(span.name, span.name)].add(
                span.rank
            )
    each = [
        f"the {name} in line {line} ({ranks(who)})" for (line, name), who in sorted(posted.items())
    ]
    if not each:
        return ""
    more = f", nor for those of {count(len(each) - AT_MOST, 'more line')}" if each[AT_MOST:] else ""
    return wrapped(
        f"Nobody waited for {', '.join(each[:AT_MOST])}{more}. Keep the Work that the call "
        "returns, and call its wait(): until then the network may still read or write the tensor."
    )
