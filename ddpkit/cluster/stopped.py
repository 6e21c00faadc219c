"""Stopped runs: the check of `timeout=`, and texts about the state of each rank at the stop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Real

from ddpkit.cluster import phrases
from ddpkit.errors import ClusterError, Doing, Waiting


def check_timeout(timeout: object, taker: str) -> None:
    """Raise ClusterError if `timeout` is not a number of seconds. Called before ranks start."""
    if timeout is not None and not (isinstance(timeout, Real) and float(timeout) > 0):
        raise ClusterError(
            f"{taker}(timeout={timeout!r}): a timeout is a number of seconds above 0. Leave "
            "timeout= out for a run without a limit"
        )


def timeout(seconds: float, doing: Mapping[int, Doing], returned: Collection[int]) -> str:
    """Return the text of a `RunTimeout`; the parameters are its fields."""
    head = f"The run took longer than its timeout of {seconds:g} s. When it was stopped,\n"
    return head + what_ranks_did(doing, returned)


def torchrun_timeout(seconds: float) -> str:
    """Return the text of a `RunTimeout` for a script under torchrun."""
    return f"torchrun was ended after its timeout of {seconds:g} s. All ranks are gone."


def stopped(
    what: str, doing: Mapping[int, Doing], returned: Collection[int] = (), by: str = "you"
) -> str:
    """Return the text of an `Interrupted`; `what` is "run" or "job", `by` is "you" or a signal."""
    where = what_ranks_did(doing, returned) or "  no run was in progress"
    return f"{by} stopped the {what}. At that moment,\n{where}"


def stalled(seconds: float, doing: Mapping[int, Doing], returned: Collection[int]) -> str:
    """Return the text about a run in which no process has worked for some seconds."""
    return (
        f"For {seconds:g} s no rank has used a processor or moved a byte. At this moment,\n"
        f"{what_ranks_did(doing, returned)}\n"
        "The run goes on, because it may only be slow. Ctrl-C, or the stop button, ends it."
    )


def what_ranks_did(doing: Mapping[int, Doing], returned: Collection[int]) -> str:
    """Return a line for each unfinished rank, and one line for all returned ranks."""
    lines = [f"  {what_rank_did(rank, each)}" for rank, each in sorted(doing.items())]
    if returned:
        lines.append(f"  {phrases.ranks(returned)} had returned")
    return "\n".join(lines)


def what_rank_did(rank: int, doing: Doing) -> str:
    """Return the state of one rank when its run was stopped, with its line of code."""
    if doing.where is None:
        return f"{phrases.ranks([rank])} was still starting"
    if doing.call is not None:
        return phrases.waits([rank], Waiting(doing.call, doing.where)).strip()
    return f"{phrases.ranks([rank])} was in {phrases.place(doing.where)}"
