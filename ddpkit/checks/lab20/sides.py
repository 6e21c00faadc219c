"""Lab 20: an answer's limit, judged by its number and by runs on both sides."""

from __future__ import annotations

import math
from typing import Any

from ddpkit.checks.lab20.limits import MOST, Hidden, close, limit


class Sides:
    """The exposed share of a step on both sides of an answer's number; one run a question."""

    def __init__(self, ask: Hidden) -> None:
        self.ask = ask

    def read(self, observed: Any) -> dict[str, Any]:
        """Return the tokens, the verdict on both sides, and the exposed ms of both runs."""
        tokens, due = observed["tokens"], limit(self.ask)
        seen: dict[str, Any] = {"tokens": tokens, "exposed": ()}
        if not isinstance(tokens, int | float) or isinstance(tokens, bool):
            return {**seen, "number": f"a number of tokens, not {type(tokens).__name__}"}
        seen["number"] = "right" if close(tokens, due) else "wrong"
        if math.isnan(tokens) or not 2 <= tokens <= MOST:
            return {**seen, "below": "not run", "above": "not run"}
        from ddpkit.checks.lab20.both_sides import exposed

        counts = math.floor(0.97 * tokens), math.ceil(1.03 * tokens)
        few, many = (max(2, each) for each in counts)
        found = exposed(self.ask, (few, many))
        seen["exposed"] = tuple(zip(counts, (ms for ms, _ in found), strict=True))
        below, above = (share for _, share in found)
        seen["below"] = "exposed" if below > 0.002 else "hidden"
        seen["above"] = "hidden" if above < 0.0005 else "exposed"
        return seen
