"""The run or the trace that a picture draws: the type of this argument, and its check."""

from __future__ import annotations

import os
from typing import Protocol

from ddpkit.errors import TraceError
from ddpkit.text import kind_of
from ddpkit.trace import Trace


class HasTrace(Protocol):
    """An object with a `trace`, such as a run; pictures use nothing else of a run."""

    @property
    def trace(self) -> Trace: ...


def trace_of(run_or_trace: HasTrace | Trace) -> Trace:
    """Return the trace of a run; return a trace unchanged."""
    return run_or_trace if isinstance(run_or_trace, Trace) else run_or_trace.trace


def skipped(
    picture: str, *runs_or_traces: HasTrace | Trace, several: bool = False, or_else: str = ""
) -> str:
    """Return the reason for no picture, if torchrun had too few ranks for a run; otherwise "".

    Each picture calls this function first, with its own name. Raises TraceError for an argument
    that is neither a run nor a trace. ``several`` is True for a picture of several runs, and
    ``or_else`` names another argument that the picture takes; both change only the error's text.
    """
    for given in runs_or_traces:
        if not _has_trace(given):
            wanted = f"{or_else}, a run or its trace" if or_else else "a run or its trace"
            raise TraceError(
                f"{picture}() takes {wanted}, not {kind_of(given)}: "
                f"{_what_to_do(picture, given, several)}"
            )
    if any("skipped" in trace_of(each).facts for each in runs_or_traces):
        return "No picture: the run was skipped."
    return ""


def _has_trace(given: object) -> bool:
    return isinstance(given, Trace) or isinstance(getattr(given, "trace", None), Trace)


def _what_to_do(picture: str, given: object, several: bool) -> str:
    if isinstance(given, str | os.PathLike):
        return f"load the file first, {picture}(Trace.load(path))"
    if isinstance(given, list | tuple) and given and all(map(_has_trace, given)):
        return f"put a star before it, {picture}(*runs)" if several else "give one of its items"
    return "give it the result of cluster.run(...)"
