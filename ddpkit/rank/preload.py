"""Imported once, by the forkserver: what every rank would otherwise spend its first seconds on.

torch takes a second or two to import. `torch._dynamo`, which DistributedDataParallel's constructor
and every optimizer's pull in, takes as long again, but the first run of a lesson rarely needs it:
it is imported a moment later, in slices, so that a run in between waits for one at most. That is
done in a signal handler, so in the one thread that forks; a second thread would be caught by a fork
with its locks held.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
from contextlib import suppress
from typing import Any

IDLE = 1.5  # seconds
FORKSERVER = os.getpid()
ORPHAN = 20.0  # seconds in which a new process must have become a rank (`process.set_up`)
BREATH = 0.3  # seconds between two slices: enough to start the ranks of a run
SLICES = ["mpmath", "sympy", "torch.distributed.tensor", "torch._dynamo"]  # each imports the former


def _import_a_slice(*_: Any) -> None:
    with suppress(ImportError):  # not every torch has all of them
        importlib.import_module(SLICES.pop(0))
    gc.freeze()
    if SLICES:
        signal.setitimer(signal.ITIMER_REAL, BREATH)


def _end_unless_a_rank() -> None:
    if os.getppid() == FORKSERVER:  # a rank's own children are the rank's affair
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, ORPHAN)


# What is loaded by now is left out of garbage collection: in a rank it would look at every object,
# and so copy every page that the ranks share.
gc.freeze()
if hasattr(signal, "setitimer"):
    signal.signal(signal.SIGALRM, _import_a_slice)
    signal.setitimer(signal.ITIMER_REAL, IDLE)
    # A launcher that is interrupted between asking for a process and telling it what to do leaves
    # one that would wait for ever.
    os.register_at_fork(after_in_child=_end_unless_a_rank)
