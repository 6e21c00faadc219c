"""Since when a call of a thread of the user's own could have been made.

A rank may send in a thread, and receive meanwhile. Which of the two is posted first is up to the
scheduler, and so would be what seems to have waited for what. A thread knows what came before its
start, and what it has waited for itself: its next call could have been made since then. Whoever
counts rounds takes that moment (`ddpkit.trace.rounds`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from ddpkit.rank.record.clock import Moment

BEGAN = "_ddpkit_began"  # attribute of a thread: the moment at which it was started


def since(thread: int, free: dict[int, Moment]) -> Moment | None:
    """Since when the thread of this id could make its next call; None of one that is not Python's.

    free  when each thread's latest wait was over
    """
    own = next((each for each in threading.enumerate() if each.ident == thread), None)
    moments = [getattr(own, BEGAN, None), free.get(thread)]
    known = [each for each in moments if isinstance(each, int)]
    return max(known, default=None)


@functools.cache
def note_starts(now: Callable[[], Moment | None]) -> None:
    """Let each thread that is started from here on know `now`, the moment of its start."""
    usual = threading.Thread.start

    @functools.wraps(usual)
    def start(self: threading.Thread) -> None:
        setattr(self, BEGAN, now())
        usual(self)

    threading.Thread.start = start  # type: ignore[method-assign]
