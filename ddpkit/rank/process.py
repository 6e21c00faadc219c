"""Sets up the process of a rank: its environment, its output, and its end.

The end is the hard part. When the launcher dies, even by `kill -9`, no rank and no child of a rank
may stay behind, although a rank may be in code that holds the GIL and never releases it.

Simpler solutions fail. A daemon process is ended by its parent's exit handler, which `kill -9`
skips. A daemon process also is not allowed to have children, such as a DataLoader's workers.
`prctl` with `PR_SET_PDEATHSIG` reports the parent's end. But the parent of a rank is the
forkserver, which lives as long as any child, and the signal reaches one process, not the children
of that process. A thread that reads from a pipe notices the end of the file, but needs the GIL to
react. A signal handler in Python needs the GIL too.

So the kernel itself acts. Each rank inherits the reading end of a pipe, its lifeline. Only the
launcher has the writing end, and writes nothing. When the launcher ends in any way, the last
writing end is closed. On Linux the reading end reports this by a signal (`O_ASYNC`), to the rank's
whole process group (`F_SETOWN` with a negative number), by SIGKILL in place of SIGIO (`F_SETSIG`).
No code of the rank has to run. On other systems a thread waits for the end of the file; on Linux
the thread is a second safeguard.

What must hold: each rank is the leader of a process group before it asks for the signal. Only the
launcher has the writing end, so `launch` starts every rank with pipes that no other rank inherits.
No process ever writes to the lifeline, because a write would also raise the signal.

What would break it: a child of the rank that makes its own process group or session.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NoReturn

from ddpkit.protocol.assignment import Assignment, ProcessSettings, RankPipes
from ddpkit.rank import keyboard


def set_up(mine: Assignment, settings: ProcessSettings, pipes: RankPipes) -> None:
    """Make this process a rank: set its process group, its environment, its output, and its end."""
    if os.name == "posix":
        # A group of its own: a kill reaches the rank's children, and Ctrl-C only the launcher.
        os.setpgid(0, 0)
        _die_with(pipes.lifeline)
    _push_nobody_aside()
    lifeline = threading.Thread(target=_watch, args=(pipes.lifeline,), daemon=True)
    lifeline.name = "ddpkit-lifeline"
    lifeline.start()
    # a child with this pipe open would keep the launcher from noticing that the rank has ended
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pipes.reply.close)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)  # stops the timer of `ddpkit.rank.preload`
    os.environ.clear()
    os.environ.update(settings.environ)
    os.environ.update(loopback())
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    os.environ.update(mine.environment)
    if settings.emulated:  # parts of torch, such as FSDP2's mesh, use any GPU that they see
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    _redirect(pipes, mine)
    if pipes.typed is None:
        keyboard.take_away()
    if sys.platform.startswith("linux"):
        # A forkserver's child would start its own children from a forkserver. Then the workers of a
        # DataLoader could not use a Dataset that a cell defines. In the notebook they can.
        multiprocessing.set_start_method("fork", force=True)
    os.chdir(settings.cwd)


def _push_nobody_aside() -> None:
    """Prevent threads of this rank that wake up from preempting the running thread.

    When a message arrives, gloo's thread tries the lock of the connection (`Pair::handleEvents` in
    gloo/transport/tcp/pair.cc). If the lock is held, the thread asks for events again: the message
    is still there, so the thread retries without rest. On few cores the holder is often the thread
    that gloo's thread has just preempted, so gloo's thread wastes its time slice. Linux has a
    scheduling policy under which threads that wake up do not preempt others: SCHED_BATCH, for batch
    jobs (sched(7)). With this policy, small messages of four ranks on two cores take at most a
    third of the time and of the processor time. Only messages between two ranks take longer, and
    only while other processes are busy, because those processes come first (BENCHMARKS.md, "Ranks
    are batch jobs").
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):  # a sandbox may forbid the policy, which only makes the rank slower
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def loopback() -> dict[str, str]:
    """Return the variables that keep gloo on loopback, without variables that the user has set."""
    wanted = {}
    if sys.platform.startswith("linux"):
        wanted["GLOO_SOCKET_IFNAME"] = "lo"
    elif sys.platform == "darwin":
        wanted["GLOO_SOCKET_IFNAME"] = "lo0"
    elif sys.platform == "win32":
        wanted["USE_LIBUV"] = "0"
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _redirect(pipes: RankPipes, mine: Assignment) -> None:
    """Connect the rank's output, input and crash reports to the launcher's pipes.

    File descriptors 1 and 2, to which C++ also writes, lead to the launcher, except for a script.
    """
    if not mine.script:
        os.dup2(_descriptor(pipes.output), 1)
        os.dup2(_descriptor(pipes.output), 2)
    if pipes.typed is not None:
        os.dup2(_descriptor(pipes.typed), 0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    else:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(  # noqa: SIM115
            number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    crash = _descriptor(pipes.crash)
    faulthandler.enable(crash, all_threads=False)
    leave, rank_pid = os._exit, os.getpid()

    def leave_traced(status: int) -> NoReturn:
        if os.getpid() == rank_pid:  # not in a child: each DataLoader worker ends by `os._exit`
            faulthandler.dump_traceback(crash, all_threads=False)
        leave(status)

    os._exit = leave_traced  # lets the notebook report the line
    if hasattr(signal, "SIGUSR1"):  # asks for a stack, even from code that holds the GIL
        faulthandler.register(signal.SIGUSR1, crash, all_threads=False)


def _descriptor(connection: Connection) -> int:
    if os.name == "posix":
        return connection.fileno()
    import msvcrt

    return int(msvcrt.open_osfhandle(connection.fileno(), os.O_WRONLY))  # type: ignore[attr-defined]


def _die_with(lifeline: Connection) -> None:
    """Make the kernel kill this process group when the launcher has ended; on Linux only."""
    if not sys.platform.startswith("linux"):
        return
    import fcntl

    descriptor = lifeline.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpid())  # a negative number: the whole group
    fcntl.fcntl(descriptor, 10, signal.SIGKILL)  # F_SETSIG, which Python's fcntl does not name
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


def _watch(lifeline: Connection) -> None:
    """Exit when the launcher has ended. On Linux this thread is only a second safeguard."""
    try:
        lifeline.poll(None)
    finally:
        os._exit(1)
