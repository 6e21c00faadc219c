"""`RunOutcome`: the results and the spans of a run, or its error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ddpkit.errors import RunFailed
from ddpkit.protocol.call import Call
from ddpkit.protocol.replica import Replica
from ddpkit.trace import Dropped, MemoryLevel, Scalar, Span


@dataclass
class RunOutcome:
    """The outcome of a run: the data that the launcher got from the ranks."""

    results: list[Any]  # results by rank; None for a rank that did not return
    output: str = ""
    spans: list[Span] = field(default_factory=list)
    # rank -> number of spans and steps that were dropped
    dropped: dict[int, Dropped] = field(default_factory=dict)
    error: RunFailed | None = None
    facts: dict[str, Scalar] = field(default_factory=dict)  # further facts for the trace
    by_luck: dict[int, Call] = field(default_factory=dict)  # the result of `Monitor.by_luck`
    replicas: dict[int, list[Replica]] = field(default_factory=dict)  # models by rank
    # rank -> timeout of the default group, in seconds
    limits: dict[int, float] = field(default_factory=dict)
    # memory levels by rank
    memory: dict[int, tuple[MemoryLevel, ...]] = field(default_factory=dict)
