"""`limits_picture`: the exposed communication's share of a step, by tokens per rank. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_LINES = 5
SETTLED = 0.02  # a share has settled if it exceeds the last share of the line by at most this


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One network's exposed shares by tokens per rank, and perhaps a limit from a formula."""

    label: str
    tokens: tuple[int, ...]
    shares: tuple[float, ...]
    limit: float | None

    @property
    def settled(self) -> int:
        """The least number of tokens from which on the share stays near its last value."""
        last = self.shares[-1]
        found = self.tokens[-1]
        for tokens, share in zip(reversed(self.tokens), reversed(self.shares), strict=True):
            if share > last + SETTLED:
                break
            found = tokens
        return found

    @property
    def words(self) -> str:
        """The line in a few words."""
        said = f"{self.label}: {self.shares[0]:.0%} exposed at {self.tokens[0]:,} tokens"
        if self.settled > self.tokens[0]:
            said += f", {self.shares[-1]:.0%} from {self.settled:,} on"
        if self.limit is not None:
            formula = "no number" if math.isinf(self.limit) else f"{self.limit:,.0f}"
            said += f"; by the formula {formula}"
        return said


@dataclass(frozen=True, slots=True)
class LimitsPicture:
    """Lines of several networks on common axes."""

    lines: tuple[LimitLine, ...]

    @property
    def title(self) -> str:
        """The subject of the picture."""
        return "Exposed share of a step by the tokens of a rank"

    @property
    def finding(self) -> str:
        """The network whose share settles last, in one sentence."""
        last = max(self.lines, key=lambda line: (line.settled, line.shares[0]))
        if last.settled == last.tokens[0]:
            return f"The share does not change from {last.tokens[0]:,} tokens on."
        return f"Exposed up to about {last.settled:,} tokens with {last.label}."

    @property
    def text(self) -> str:
        """The picture in words and numbers, a line for each network."""
        return "\n".join(line.words for line in self.lines)


def limits_picture(
    lines: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    limits: Mapping[str, float] | None = None,
) -> LimitsPicture:
    """Return the picture; ``lines`` maps a network's label to (tokens, exposed shares).

    ``limits`` maps a label to a number of tokens. Raises ValueError for no line, too many lines,
    tokens that are not in rising order, shares outside 0 to 1, and a limit with a label that no
    line has.
    """
    limits = limits or {}
    if not 1 <= len(lines) <= MOST_LINES:
        raise ValueError(f"show_limits draws 1 to {MOST_LINES} lines, not {len(lines)}")
    if unknown := sorted(limits.keys() - lines.keys()):
        raise ValueError(f"limits= has a limit for {unknown[0]!r}, but no line has this label")
    found = []
    for label, (tokens, shares) in lines.items():
        if len(tokens) != len(shares) or not tokens:
            raise ValueError(
                f"{label!r}: give at least one number of tokens, and one share for each"
            )
        if list(tokens) != sorted(set(tokens)) or tokens[0] <= 0:
            raise ValueError(f"{label!r}: the numbers of tokens must rise and be above 0")
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"{label!r}: an exposed share is from 0 to 1")
        found.append(LimitLine(label, tuple(tokens), tuple(shares), limits.get(label)))
    return LimitsPicture(tuple(found))
