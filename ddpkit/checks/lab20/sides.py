"""Lab 20: the number of tokens that hides a communication, judged by the formula and two runs.

The runs have slightly fewer and slightly more tokens than the answer's number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ddpkit.checks.lab20.limits import MOST, Hidden, close, is_least, limit

if TYPE_CHECKING:
    from ddpkit.exercises.exercise import Observed


def verdict(tokens: float, ask: Hidden) -> str:
    """Return "right", "not rounded up" for a number near the limit, or "wrong"."""
    if is_least(tokens, ask):
        return "right"
    return "not rounded up" if close(tokens, limit(ask)) else "wrong"


class Sides:
    """The verdict on an answer's number of tokens: by the formula, and by two runs."""

    def __init__(self, ask: Hidden) -> None:
        self.ask = ask

    def read(self, observed: Observed) -> dict[str, object]:
        """Return the tokens, the verdict, and the exposed ms with fewer and with more tokens.

        If no ranks can be started, the formula alone decides.
        """
        tokens = observed["tokens"]
        seen: dict[str, object] = {"tokens": tokens, "exposed": ()}
        if not isinstance(tokens, int | float) or isinstance(tokens, bool):
            return {**seen, "number": f"a number of tokens, not {type(tokens).__name__}"}
        seen["number"] = verdict(tokens, self.ask)
        if math.isnan(tokens) or not 2 <= tokens <= MOST:
            return seen
        from ddpkit.checks.lab20.both_sides import exposed

        counts = math.floor(0.97 * tokens), math.ceil(1.03 * tokens)
        few, many = (max(2, each) for each in counts)
        try:
            found = exposed(self.ask, (few, many))
        except Exception:
            return seen  # no ranks start under the grader's limit of memory
        seen["exposed"] = tuple(zip(counts, (ms for ms, _ in found), strict=True))
        below, above = (share for _, share in found)
        if seen["number"] == "right" and not (below > 0.002 and above < 0.0005):
            seen["number"] = "right on paper alone"  # the formula and the runs disagree
        return seen
