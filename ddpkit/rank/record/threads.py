"""Computes the earliest time at which a thread of the user's code could have made a call.

A rank may send in a thread, and receive meanwhile. The scheduler decides which of the two is posted
first, and so would decide which call seems to have waited for which. But a thread depends only on
the events before its start and on its own waits: its next call could have been made right after the
latest of these. Counts of rounds use that moment (`ddpkit.trace.rounds`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from ddpkit.rank.record.clock import Moment

BEGAN = "_ddpkit_began"  # attribute of a thread: the moment at which it was started


def since(thread: int, free: dict[int, Moment]) -> Moment | None:
    """Return the earliest time of a thread's next call; None if Python did not start the thread.

    free  the end of each thread's latest wait
    """
    own = next((each for each in threading.enumerate() if each.ident == thread), None)
    moments = [getattr(own, BEGAN, None), free.get(thread)]
    known = [each for each in moments if isinstance(each, int)]
    return max(known, default=None)


@functools.cache
def note_starts(now: Callable[[], Moment | None]) -> None:
    """Record, on each thread that starts from now on, the moment `now()` of its start."""
    usual = threading.Thread.start

    @functools.wraps(usual)
    def start(self: threading.Thread) -> None:
        setattr(self, BEGAN, now())
        usual(self)

    threading.Thread.start = start  # type: ignore[method-assign]
