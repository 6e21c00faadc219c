"""The text about Work objects without a wait(), which is printed after a successful run."""

from __future__ import annotations

from collections import defaultdict

from ddpkit.cluster.phrases import ranks, wrapped
from ddpkit.text import count
from ddpkit.trace import UNWAITED, Trace

AT_MOST = 3  # lines of code that the text names


def unwaited(trace: Trace) -> str:
    """Return a text, "Nobody waited for the all_reduce in line 3 (ranks 0, 1). Keep ...", or "".

    The text leaves out operations that torch's own code posted.
    """
    each, more = by_line(trace, UNWAITED)
    if not each:
        return ""
    more = more and f", nor for those of {more}"
    return wrapped(
        f"Nobody waited for {', '.join(each)}{more}. Keep the Work that the call returns, and call "
        "its wait(): until then the network may still read or write the tensor."
    )


def by_line(trace: Trace, fact: str) -> tuple[list[str], str]:
    """Return a text for each line with calls that have `fact`, and a text about further lines.

    The texts are, for example, ["the isend in line 3 (rank 0)"] and "2 more lines". The last text
    is "" if there are no further lines.
    """
    posted: dict[tuple[int, str], set[int]] = defaultdict(set)  # (line, name) -> ranks
    for span in trace.spans:
        line = span.args.get("line")
        if fact in span.args and isinstance(line, int) and line:
            posted[line, {"send": "isend", "recv": "irecv"}.get(span.name, span.name)].add(
                span.rank
            )
    each = [
        f"the {name} in line {line} ({ranks(who)})" for (line, name), who in sorted(posted.items())
    ]
    left = len(each) - AT_MOST
    return each[:AT_MOST], count(left, "more line") if left > 0 else ""
