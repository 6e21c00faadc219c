"""What the forkserver imports, once: each rank would spend its first seconds on it.

The problem. torch takes a second or two to import. A forkserver that has it forks four ranks in
about 0.1 s. Few ranks need torch's compiler (`compiler.py`), but for those that do, as FSDP and
DTensor, it takes as long again, and 80 MB a rank. No run that does not need it should wait for it.

It would be simpler to import that in a second thread (a fork copies the thread that forks, and no
other: a lock that another thread held, such as that of the module under import, is locked in the
child for ever).

So the import happens later, in the one thread that forks, from the handler of a signal. Python runs
a handler between two instructions of the main thread, and the forkserver's main thread waits for
requests there. While the handler imports, no rank is forked. There are three signals:

- SIGUSR2 comes from the launcher before it asks for ranks whose function names what needs the
  compiler (`launch.load_compiler_for`). All is imported at once, for all of them.
- SIGURG comes from the launcher when ranks have had to import a part of it themselves, as a call
  `y.backward(gradient)` does: the next ones will want it. One part is imported, beside what the
  launcher does with the results.
- SIGALRM comes from a timer, when no rank has been asked for in a while: see the end.

What must hold:

- Only the main thread imports, and only it forks. So no child sees an import half done. Nor does
  the handler where it has interrupted itself.
- A child has the handlers, but no timer: fork clears it. The child sets one of its own, without
  a handler, which ends it after `ORPHAN` seconds; a rank stops that one (`process.set_up`).
- What is loaded is frozen (`gc.freeze`) after each part. Otherwise a rank's first collection would
  write to every object, and so copy every page that the ranks share.
- SIGUSR2 is blocked in a new forkserver (`launch.warm_up`): it would end one without a handler.

What would break it: a forkserver with threads; a part whose import starts threads.

When no rank has been asked for in `IDLE` seconds, the forkserver's memory is put into pages of
2 MB. A fork copies an entry for each page, and the end of a rank looks at each: with pages of 4 kB
that was a fifth of what a rank of an empty function costs (BENCHMARKS.md, "The tests"). A run that
comes meanwhile waits 0.3 s.
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

gc.disable()  # until all is there: looking for garbage is a fifth of the time that torch takes

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
GONE = 0.5  # seconds in which a launcher whose pipe has closed has ended, if that was why
ORPHAN = 60.0  # seconds in which a new process must have become a rank, on busy cores too
EACH_RANK = (  # what each rank would import, 20 to 50 ms a rank
    "ddpkit.exercises.ranks",
    "ddpkit.rank.emulation.counted",
    "ddpkit.rank.emulation.streams",
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
    """Leave ranks little to write to: what they would do first, each for itself, is done here."""
    look_for_tellers()
    torch.manual_seed(0)  # reads the lines that it quotes
    if rules := sys.modules.get(f"{COMPILER}.trace_rules"):
        with suppress(AttributeError):  # joining a group does so
            rules.clear_lru_cache()
    is_user_file(signal.__file__)  # looks through the folders that Python imports from
    gc.freeze()
    gc.enable()


def _in_huge_pages() -> None:
    """Put what is in memory, and in no file, into huge pages, as far as the kernel soon can."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:  # no Linux
        return
    until = time.monotonic() + ENOUGH  # where memory is short, each page has to be made room for
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for where, rights, _, _, inode, *name in map(str.split, maps):
        begin, end = (int(address, 16) for address in where.split("-"))
        its_own = rights == "rw-p" and inode == "0" and name in ([], ["[heap]"])
        if its_own and end - begin >= HUGE_PAGE and time.monotonic() < until:
            madvise(begin, end - begin, MADV_COLLAPSE)  # an error leaves pages as they are


_importing = threading.Lock()
_asked = False  # for all parts at once


def _import_parts(number: int, _: object) -> None:
    """Import the next of `to_import`, or all of them if the launcher has asked for them.

    The handler of SIGUSR2 and SIGURG.
    """
    global _asked
    _asked = _asked or number == signal.SIGUSR2
    if not _importing.acquire(blocking=False):
        return  # it has interrupted itself, and will see what is asked
    try:
        gc.disable()
        before = len(to_import)
        while to_import:
            with suppress(ImportError):  # not every torch has all of them
                compiler.load(to_import.pop(0))
            if not _asked:
                break
        if len(to_import) < before:
            _ready()
            signal.setitimer(signal.ITIMER_REAL, IDLE)
    finally:
        gc.enable()
        _importing.release()
    if _asked and to_import:  # since the last look
        _import_parts(signal.SIGUSR2, None)


def _tidy(_: int, __: object) -> None:
    """Put what is there into huge pages. The handler of the timer, which a new part sets again."""
    _in_huge_pages()


def _put_off() -> None:
    """Let one run follow another without a wait for huge pages."""
    mine = os.getpid() == FORKSERVER  # a rank's own children are the rank's affair
    if mine and signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, IDLE)


def _end() -> None:
    """End a forkserver at once, and remove its socket's folder, which a killed launcher leaves."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # Python still runs handlers, and imports fail by now
    server = vars(multiprocessing.forkserver._forkserver)
    address = server.get("_forkserver_address")
    if not address or server.get("_forkserver_alive_fd") is not None:
        return  # this is no forkserver: somebody has imported this module
    give_up = time.monotonic() + GONE
    while os.getppid() == LAUNCHER:
        if time.monotonic() > give_up:  # it lives, and may want another forkserver in that folder
            os._exit(0)
        time.sleep(0.01)
    with suppress(OSError):  # the launcher was first
        os.unlink(address)
        os.rmdir(os.path.dirname(address))  # if nothing else is in it
    os._exit(0)  # the interpreter's end would take torch to pieces


def _end_unless_a_rank() -> None:
    """End a new process that does not become a rank in time."""
    if os.getppid() == FORKSERVER:  # a rank's own children are the rank's affair
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        signal.signal(signal.SIGURG, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, ORPHAN)


# By name: a rank needs none of the exercises.
for name in EACH_RANK:
    with suppress(UnsupportedTorch):  # a rank raises the error when the rank needs the module
        importlib.import_module(name)
with suppress(ImportError):  # numpy may be missing; the import makes numpy's generators
    importlib.import_module("numpy.random")
lay_the_way()
compiler.put_off()
# What is loaded by now is left out of garbage collection: in a rank it would look at every object,
# and so copy every page that the ranks share.
_ready()
if hasattr(signal, "setitimer"):
    signal.signal(signal.SIGALRM, _tidy)
    signal.signal(signal.SIGUSR2, _import_parts)
    signal.signal(signal.SIGURG, _import_parts)
    signal.setitimer(signal.ITIMER_REAL, IDLE)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    atexit.register(_end)
    # A launcher that is interrupted between asking for a process and telling it what to do leaves
    # one that would wait for ever.
    os.register_at_fork(before=_put_off, after_in_child=_end_unless_a_rank)
