"""Chooses the rank at fault, and makes one error with the cause from the reports of all ranks.

When one rank fails, its peers fail too: gloo reports a closed connection to them. A launcher
therefore waits for `patience` seconds after the first failure, and then calls `blame`.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress

from ddpkit.cluster import causes, explain, stopped
from ddpkit.errors import Death, LastSeen, Mismatch, RankDied, RankError, RunFailed, RunTimeout
from ddpkit.protocol.raised import Raised

ROOT_CAUSE = 0.15  # seconds in which further ranks may report the cause
ECHO = 2.0  # seconds to report the cause, if every exception so far is an echo

# Messages of exceptions that only echo the end of a peer.
ECHOES = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Socket Timeout")


def echoes(message: str) -> bool:
    """True if the message of an exception only reports that a peer is gone."""
    return any(words in message for words in ECHOES)


def is_echo(raised: Raised) -> bool:
    """True if an exception only reports that a peer is gone."""
    return echoes(raised.message)


def patience(raised: Mapping[int, Raised], deaths: Collection[int]) -> float:
    """Return the seconds from the first failure until the launcher may call `blame`."""
    return ECHO if not deaths and all(map(is_echo, raised.values())) else ROOT_CAUSE


def blame(
    raised: Mapping[int, Raised],
    deaths: Mapping[int, Death],
    disagreement: Mismatch | None = None,
    returned: Collection[int] = (),
) -> RunFailed:
    """Return the error for a run in which at least one rank raised or ended.

    A disagreement takes precedence, because it makes gloo abort or hang. Next come, in this order:
    a certain death; an exception that is not an echo; a connection that ended (cause "gone" or
    "left"). torchrun ends all ranks of a host when one rank has failed, so among several ended
    connections only the first counts. `deaths` are in the order in which the launcher noticed them.
    """
    if disagreement is not None:
        return disagreement
    own = {rank: each for rank, each in raised.items() if not is_echo(each)}
    sure = {rank: each for rank, each in deaths.items() if each.cause in ("signal", "exit")}
    if sure:
        return _died(dict(sorted(sure.items())), own, returned)
    if own:
        return _raised(own, returned)
    if deaths:
        return _died(dict([next(iter(deaths.items()))]), {}, returned)
    return _raised(raised, returned)


def late_torchrun(seconds: float) -> RunTimeout:
    """Return the error for torchrun ranks that took too long; they have no black box to read."""
    return RunTimeout(stopped.torchrun_timeout(seconds), seconds=seconds)


def process_death(exit_code: int | None, last: LastSeen | None) -> Death:
    """Return the death of a process with this exit code of `multiprocessing`."""
    if exit_code is None or exit_code >= 0:
        return Death("exit", exit_code=exit_code, last=last)
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return Death("signal", signal=name, last=last)


def _died(
    deaths: Mapping[int, Death], raised: Mapping[int, Raised], returned: Collection[int]
) -> RankDied:
    text = explain.died(deaths, raised)
    return RankDied(text, ranks=tuple(deaths), returned=returned, deaths=deaths, raised=raised)


def _raised(raised: Mapping[int, Raised], returned: Collection[int]) -> RunFailed:
    """Return the error for ranks that raised; the exception of the lowest rank is the cause."""
    lowest, same = min(raised), causes.alike(raised)
    first = raised[lowest]
    if first.exit_code is not None:
        return _died({rank: _exited(raised[rank]) for rank in same}, raised, returned)
    error = RankError(explain.raised(raised), ranks=same, returned=returned, raised=raised)
    if first.pickled:
        with suppress(Exception):
            error.__cause__ = pickle.loads(first.pickled)
    error.add_note(f"On rank {lowest}:\n{first.traceback}")
    return error


def _exited(raised: Raised) -> Death:
    """Return the death of a rank that called sys.exit."""
    last = LastSeen(raised.frames[-1][:2]) if raised.frames else None
    return Death("sys.exit", exit_code=raised.exit_code, last=last)
