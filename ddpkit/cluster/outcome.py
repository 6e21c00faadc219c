"""How a run ended: results and spans, or the error that says why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ddpkit.errors import RunFailed
from ddpkit.trace import Dropped, MemoryLevel, Scalar, Span


@dataclass
class RunOutcome:
    """What came back from the ranks."""

    results: list[Any]  # results by rank; None for a rank that did not return
    output: str = ""
    spans: list[Span] = field(default_factory=list)
    dropped: dict[int, Dropped] = field(default_factory=dict)  # by rank
    error: RunFailed | None = None
    facts: dict[str, Scalar] = field(default_factory=dict)  # more of them, for the trace
    memory: dict[int, tuple[MemoryLevel, ...]] = field(default_factory=dict)  # by rank
