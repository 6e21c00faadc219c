"""What pictures are made of: a run, or its trace."""

from __future__ import annotations

from typing import Protocol

from ddpkit.trace import Trace


class HasTrace(Protocol):
    """A run, as far as pictures know it."""

    @property
    def trace(self) -> Trace: ...


def trace_of(run_or_trace: HasTrace | Trace) -> Trace:
    """The trace itself, or that of the run."""
    return run_or_trace if isinstance(run_or_trace, Trace) else run_or_trace.trace


def skipped(*runs_or_traces: HasTrace | Trace) -> str:
    """Why there is nothing to show of these, if torchrun had too few ranks for a run; else ""."""
    if any("skipped" in trace_of(each).facts for each in runs_or_traces):
        return "No picture: the run was skipped."
    return ""
