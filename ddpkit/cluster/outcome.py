"""How a run ended: results and spans, or the error that says why not."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ddpkit.cluster.explain import place, ranks
from ddpkit.errors import RankDied, RankError, RunFailed
from ddpkit.text import BLANK
from ddpkit.trace import Dropped, Scalar, Span

Report = Mapping[str, Any]  # of an exception, as `rank.report` made it

# What a rank's own exception says when it is only the echo of another rank's end.
ECHOES = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Socket Timeout")


@dataclass
class Outcome:
    """What came back from the ranks."""

    results: list[Any]
    output: str = ""
    spans: list[Span] = field(default_factory=list)
    left_out: dict[int, Dropped] = field(default_factory=dict)  # by rank
    error: RunFailed | None = None
    facts: dict[str, Scalar] = field(default_factory=dict)  # more of them, for the trace


def is_echo(report: Report) -> bool:
    """Whether an exception only tells that a peer is gone."""
    return any(words in report["message"] for words in ECHOES)


def rank_error(reports: Mapping[int, Report]) -> RunFailed:
    """The error for ranks that raised: the first one's exception in full, the others' in a line."""
    rank = min(reports)
    report = reports[rank]
    same = [r for r, other in reports.items() if _kind(other) == _kind(report)]
    if report["exit"] is not None or report["type"] == "SystemExit":
        text = f"{ranks(same)} called sys.exit({report['message']}) instead of returning."
        return RankDied("\n".join([text, *_lines(report)]), ranks=tuple(sorted(same)))
    if report["unsendable"]:
        text = f"{ranks(same)}: {report['message']}"
        return RankError("\n".join([text, *_lines(report)]), ranks=tuple(sorted(same)))
    lines = [_headline(same, report), *_lines(report)]
    for r, other in sorted(reports.items()):
        if r not in same:
            lines.append(f"{ranks([r])} raised {other['type']}: {_short(other['message'])}")
            lines += _lines(other)
    error = RankError("\n".join(lines), ranks=tuple(sorted(same)))
    if report["pickled"]:
        with suppress(Exception):
            error.__cause__ = pickle.loads(report["pickled"])
    error.add_note(f"On rank {rank}:\n{report['traceback']}")
    return error


def _headline(same: list[int], report: Report) -> str:
    if report["type"] == "NotImplementedError" and report["message"].startswith(BLANK):
        name = report["frames"][-1][2] if report["frames"] else "an exercise"
        return f"{name} is not answered yet: write your code, run its cell, then this one."
    return f"{ranks(same)} raised {report['type']}: {_short(report['message'])}"


def _kind(report: Report) -> tuple[Any, ...]:
    return report["type"], tuple(report["frames"][-1:])


def _lines(report: Report) -> list[str]:
    """The user's own lines, outermost first, as a traceback has them."""
    frames = report["frames"]
    shown = frames if len(frames) <= 6 else [*frames[:2], None, *frames[-3:]]
    return [
        "    ..."
        if frame is None
        else f"  {place(frame[:2])}{f'  (in {frame[2]})' if frame[2] else ''}"
        for frame in shown
    ]


def _short(message: str, limit: int = 2000) -> str:
    return message if len(message) <= limit else f"{message[:limit]} ..."
