"""The text about collectives that were paired although ranks called them in different orders."""

from __future__ import annotations

from collections.abc import Mapping

from ddpkit.cluster.disagreement import from_lines
from ddpkit.cluster.phrases import of_group, wrapped
from ddpkit.protocol.call import Call


def paired_by_luck(calls: Mapping[int, Call]) -> str:
    """Return a text, "The ranks seem to have made collectives in different orders ...", or "".

    calls  each rank's call of the first wrongly paired collective, from `Monitor.by_luck`
    """
    if not calls:
        return ""
    first = next(iter(calls.values()))
    return wrapped(
        f"The ranks seem to have made collectives in different orders, from number {first.seq} on"
        f"{of_group(first)}: {from_lines(calls)}. Calls meet by their number alone, so values that "
        "do not belong together were combined."
    )
