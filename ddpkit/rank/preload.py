"""The forkserver's imports, done once for all ranks.

Otherwise each rank would spend its first seconds on these imports.

The problem. torch takes a second or two to import. A forkserver with torch forks four ranks in
about 0.1 s. Few ranks need torch's compiler (`compiler.py`). For those that do, as with FSDP and
DTensor, its import takes as long again and needs 80 MB a rank. No other run should wait for it.

It would be simpler to import the compiler in a second thread. But a fork copies only the thread
that forks: a lock that another thread held, such as the lock of the module under import, stays
locked in the child forever.

So the import happens later, in the one thread that forks, from the handler of a signal. Python runs
a handler between two instructions of the main thread, and the forkserver's main thread waits for
requests there. While the handler imports, no rank is forked. There are three signals:

- SIGUSR2 comes from the launcher before it asks for ranks with a function that needs the compiler,
  by the names in its code (`launch.load_compiler_for`). The handler imports all parts at once.
- SIGURG comes from the launcher when ranks had to import a part of the compiler themselves, for
  example because of a call `y.backward(gradient)`: the next ranks will need that part too. The
  handler imports one part, while the launcher processes the results.
- SIGALRM comes from a timer if the launcher has requested no rank for a while: see the last
  paragraph.

What must hold:

- Only the main thread imports, and only the main thread forks. So no child sees a half finished
  import. A handler that has interrupted another handler imports nothing.
- A child has the handlers, but no timer: fork clears the timer. The child sets a timer of its own,
  without a handler, which ends the child after `ORPHAN` seconds; a rank stops this timer
  (`process.set_up`).
- Loaded objects are frozen (`gc.freeze`) after each part. Otherwise a rank's first collection would
  write to every object, and so copy every page that the ranks share.
- SIGUSR2 is blocked in a new forkserver (`launch.warm_up`): it would end a process without a
  handler.

What would break it: a forkserver with threads; a part that starts threads on import.

If no rank was requested for `IDLE` seconds, the forkserver's memory is put into pages of 2 MB. A
fork copies an entry for each page, and the end of a rank looks at each entry: with pages of 4 kB
this took a fifth of the cost of a rank with an empty function (BENCHMARKS.md, "The tests"). A run
that comes during this work waits 0.3 s.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

gc.disable()  # during the imports: collecting garbage would take a fifth of torch's import time

import torch  # noqa: E402

import ddpkit.rank.group.backend  # noqa: E402
import ddpkit.rank.life  # noqa: E402
import ddpkit.rank.main  # noqa: E402, F401
from ddpkit.errors import UnsupportedTorch  # noqa: E402
from ddpkit.rank import compiler  # noqa: E402
from ddpkit.rank.emulation.seen import look_for_tellers  # noqa: E402
from ddpkit.rank.record.compute import lay_the_way  # noqa: E402
from ddpkit.source import is_user_file  # noqa: E402
from ddpkit.torch_private import COMPILER  # noqa: E402

IDLE = 2.0  # seconds since the last rank was forked
FORKSERVER, LAUNCHER = os.getpid(), os.getppid()
GONE = 0.5  # seconds to wait for the end of a launcher that may have closed the pipe by its end
ORPHAN = 60.0  # seconds in which a new process must have become a rank, on busy cores too
EACH_RANK = (  # modules that each rank would import, 20 to 50 ms a rank
    "ddpkit.exercises.ranks",
    "ddpkit.rank.emulation.counted",
    "ddpkit.rank.emulation.streams",
    "ddpkit.rank.emulation.timed",
    "ddpkit.rank.group.asked",
    "ddpkit.rank.group.hidden",
    "ddpkit.rank.group.in_flight",
    "ddpkit.rank.modes_on",
    "ddpkit.rank.record.models",
    "ddpkit.rank.record.replicas",
    "ddpkit.rank.rpc",
    "ddpkit.rank.side_channels",
    "ddpkit.rank.stores",
    "multiprocessing.popen_forkserver",
)
MADV_COLLAPSE, HUGE_PAGE = 25, 1 << 21  # Linux 6.1 and later; bytes
ENOUGH = 0.5  # seconds, after which no further mapping is put into huge pages
to_import = [*compiler.PARTS]


def _ready() -> None:
    """Do the first work of every rank in the forkserver: then ranks write to few shared pages."""
    look_for_tellers()
    torch.manual_seed(0)  # the first call imports code that reads source lines for a warning
    if rules := sys.modules.get(f"{COMPILER}.trace_rules"):
        with suppress(AttributeError):  # each rank would call this when joining a group
            rules.clear_lru_cache()
    is_user_file(signal.__file__)  # reads the folders from which Python imports
    gc.freeze()
    gc.enable()


def _in_huge_pages() -> None:
    """Move anonymous memory into huge pages, for at most `ENOUGH` seconds."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:  # no Linux
        return
    until = time.monotonic() + ENOUGH  # if memory is short, each new page costs time
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for where, rights, _, _, inode, *name in map(str.split, maps):
        begin, end = (int(address, 16) for address in where.split("-"))
        its_own = rights == "rw-p" and inode == "0" and name in ([], ["[heap]"])
        if its_own and end - begin >= HUGE_PAGE and time.monotonic() < until:
            madvise(begin, end - begin, MADV_COLLAPSE)  # after an error the pages stay as they are


_importing = threading.Lock()
_asked = False  # True once all parts are asked for


def _import_parts(number: int, _: object) -> None:
    """Import the next module of `to_import`, or all if the launcher has requested all.

    This function is the handler of SIGUSR2 and SIGURG.
    """
    global _asked
    _asked = _asked or number == signal.SIGUSR2
    if not _importing.acquire(blocking=False):
        return  # the interrupted handler will see `_asked`
    try:
        gc.disable()
        before = len(to_import)
        while to_import:
            with suppress(ImportError):  # not every torch has all parts
                compiler.load(to_import.pop(0))
            if not _asked:
                break
        if len(to_import) < before:
            _ready()
            signal.setitimer(signal.ITIMER_REAL, IDLE)
    finally:
        gc.enable()
        _importing.release()
    if _asked and to_import:  # after the loop, a second signal has asked for all parts
        _import_parts(signal.SIGUSR2, None)


def _tidy(_: int, __: object) -> None:
    """Move memory into huge pages. This function is the handler of the timer's signal, SIGALRM."""
    _in_huge_pages()


def _put_off() -> None:
    """Restart the timer, so that a run soon after another does not wait for huge pages."""
    mine = os.getpid() == FORKSERVER  # this module leaves the children of a rank alone
    if mine and signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, IDLE)


def _end() -> None:
    """End a forkserver at once, and remove its socket's folder, which a killed launcher leaves."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # a handler would still run, and its imports would fail
    server = vars(multiprocessing.forkserver._forkserver)
    address = server.get("_forkserver_address")
    if not address or server.get("_forkserver_alive_fd") is not None:
        return  # no forkserver: other code has imported this module
    give_up = time.monotonic() + GONE
    while os.getppid() == LAUNCHER:
        # the launcher lives, and may start another forkserver in that folder
        if time.monotonic() > give_up:
            os._exit(0)
        time.sleep(0.01)
    with suppress(OSError):  # the launcher may have removed the folder already
        os.unlink(address)
        os.rmdir(os.path.dirname(address))  # fails if the folder has other files
    os._exit(0)  # a normal end of the interpreter would tear down torch first


def _end_unless_a_rank() -> None:
    """End a new process that does not become a rank in time."""
    if os.getppid() == FORKSERVER:  # this module leaves the children of a rank alone
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, ORPHAN)


# A loop over names imports only the modules that every rank needs: not the exercises.
for name in EACH_RANK:
    with suppress(UnsupportedTorch):  # a rank raises the error when the rank needs the module
        importlib.import_module(name)
with suppress(ImportError):  # numpy may be missing; the import makes numpy's generators
    importlib.import_module("numpy.random")
lay_the_way()
compiler.put_off()
# Objects loaded by now are left out of garbage collection: a collection in a rank would write to
# every object, and so copy every page that the ranks share.
_ready()
if hasattr(signal, "setitimer"):
    signal.signal(signal.SIGALRM, _tidy)
    signal.signal(signal.SIGUSR2, _import_parts)
    signal.signal(signal.SIGURG, _import_parts)
    signal.setitimer(signal.ITIMER_REAL, IDLE)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    atexit.register(_end)
    # A launcher that is interrupted between requesting a process and instructing it leaves a
    # process that would wait forever.
    os.register_at_fork(before=_put_off, after_in_child=_end_unless_a_rank)
