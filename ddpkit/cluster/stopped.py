"""A run that is stopped: which timeouts there are, and words for what each of its ranks did."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Real

from ddpkit.cluster import explain
from ddpkit.errors import ClusterError, Doing, Waiting


def check_timeout(timeout: object, taker: str) -> None:
    """Raise ClusterError, before anything is started, for what is no `timeout=` of `taker`."""
    if timeout is not None and not (isinstance(timeout, Real) and float(timeout) > 0):
        raise ClusterError(
            f"{taker}(timeout={timeout!r}): a timeout is a number of seconds above 0; without one "
            "a run may take for ever"
        )


def timeout(seconds: float, doing: Mapping[int, Doing], returned: Collection[int]) -> str:
    """The text of a `RunTimeout` with these fields."""
    head = f"The run took longer than its timeout of {seconds:g} s. When it was stopped,\n"
    return head + what_ranks_did(doing, returned)


def torchrun_timeout(seconds: float) -> str:
    """The text of a `RunTimeout` of a script under torchrun."""
    return f"torchrun was ended after {seconds:g} s, its `timeout=`. All ranks are gone."


def stopped(what: str, doing: Mapping[int, Doing], returned: Collection[int] = ()) -> str:
    """The text of an `Interrupted`; `what` was stopped: "run", "job"."""
    where = what_ranks_did(doing, returned) or "  no run was going on"
    return f"you stopped the {what}. At that moment,\n{where}"


def what_ranks_did(doing: Mapping[int, Doing], returned: Collection[int]) -> str:
    """A line for each unfinished rank, and one for all others."""
    lines = [f"  {what_rank_did(rank, each)}" for rank, each in sorted(doing.items())]
    if returned:
        lines.append(f"  {explain.ranks(returned)} had returned")
    return "\n".join(lines)


def what_rank_did(rank: int, doing: Doing) -> str:
    """What one rank did when its run was stopped, and in which line."""
    if doing.where is None:
        return f"{explain.ranks([rank])} was still starting"
    if doing.call is not None:
        return explain.waits([rank], Waiting(doing.call, doing.where)).strip()
    return f"{explain.ranks([rank])} was in {explain.place(doing.where)}"
