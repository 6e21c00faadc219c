"""Imported once, by the forkserver: what every rank would otherwise spend its first seconds on.

torch takes a second or two to import. `torch._dynamo`, which DistributedDataParallel's constructor
pulls in, takes as long again, but the first run of a lesson rarely needs it: it is imported once
the forkserver has been idle for a moment. That is done in a signal handler, so in the one thread
that forks; a second thread would be caught by a fork with its locks held.
"""

from __future__ import annotations

import signal
from typing import Any

import ddpkit.rank.compute
import ddpkit.rank.group
import ddpkit.rank.main  # noqa: F401

IDLE = 1.5  # seconds


def _import_the_rest(*_: Any) -> None:
    import torch._dynamo  # noqa: F401


if hasattr(signal, "setitimer"):
    signal.signal(signal.SIGALRM, _import_the_rest)
    signal.setitimer(signal.ITIMER_REAL, IDLE)
