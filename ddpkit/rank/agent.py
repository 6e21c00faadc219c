"""The agent: a thread that keeps reporting the line and the wait of a rank's main thread.

The problem. Only the ranks' waits tell a deadlock from a slow run, and a waiting rank cannot report
its wait: its main thread is inside gloo. Recorded calls know their waits (`Recorder.waits`), but
there are other waits. DDP's C++ reducer waits for its buckets inside `backward()`; a future's
`wait()` is compiled; `new_group` waits for the store; `thread.join()` waits for a thread that
itself waits. None of these passes Python code of ddpkit.

It would be simpler to wrap them all. But C++ cannot be wrapped from Python, and each forgotten wait
would be an invisible deadlock. A signal handler in Python runs only when the main thread is back in
Python, which a waiting thread never is. `faulthandler` can write a stack from inside any wait, and
ddpkit uses it if a rank holds the GIL. But a stack has lines and no objects, and the signal that
asks for a stack interrupts a system call.

So a thread looks at the main thread's innermost frame (`sys._current_frames`). gloo releases the
GIL in every wait, so the agent can run. The frame shows the function of torch in which the thread
is. Compiled code has no frame, so the agent finds a call of compiled code in the caller's bytecode:
the frame stands at a call, and the instruction before the call loaded an attribute `wait`.

What must hold:

- While the agent looks at a frame, this thread collects no garbage: asking for another thread's
  frame makes an object, which may start a collection, and its finalizers may release the GIL. The
  main thread then returns from the frame, and Python 3.11 reads freed memory (`_no_collection`).
- A look keeps no frame (`Stand`), and as far as possible no other thread runs during a look: a
  function that returned meanwhile would leave its variables to the frame, and a tensor would be
  freed late by chance. If compute is counted, the agent does not look at a thread while its counted
  compute advances.
- A missed wait hides a deadlock. A wrongly reported wait gives wrong words, but no false deadlock
  as long as the rank uses its CPU, which the monitor checks. So a frame in torch.distributed counts
  as a wait unless there is evidence against it: the thread has used the CPU since the last look, or
  the function only returns information (`get_rank`).
- A rank does not count as waiting while a working thread of the user's may still end the wait.

What would break it: a compiled wait with another name than `wait`; a torch that runs the backward
under another name than `_engine_run_backward`; a group that waits while it holds the GIL, because
the agent then cannot run, and the rank's last status grows old.
"""

from __future__ import annotations

import dis
import gc
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ddpkit import torch_private
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.call import Call
from ddpkit.protocol.status import RankStatus
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.where import user_call
from ddpkit.source import PACKAGE


class Stand(NamedTuple):
    """The position of a thread: attributes of its innermost frame, under the same names."""

    f_code: CodeType
    f_lasti: int
    number: int  # id of the frame
    where: tuple[str, int]
    via: str
    f_locals: dict[str, Any]  # a few variables, of functions that hold no tensors; else empty

    @classmethod
    def of(cls, frame: FrameType) -> Stand:
        """Return the position of a thread, from its frame."""
        code, known = frame.f_code, dict[str, Any]()
        if code.co_name == "_make" or os.path.basename(code.co_filename) == "threading.py":
            names = ("name", "members", "timeout")
            known = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
        return cls(code, frame.f_lasti, id(frame), *user_call(frame), known)


def _stands() -> dict[int, Stand]:
    """Return the position of each thread. No other thread runs until all frames are released."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1)
    try:
        return {thread: Stand.of(frame) for thread, frame in sys._current_frames().items()}
    finally:
        sys.setswitchinterval(interval)


def _in_compiled_wait(frame: FrameType | Stand) -> bool:
    """True if a frame is inside a call `x.wait()` of a compiled object, such as a future."""
    done = (i for i in dis.get_instructions(frame.f_code) if i.offset < frame.f_lasti)
    last = deque((i for i in done if i.opname != "PRECALL"), maxlen=1)
    return any(i.opname in ("LOAD_METHOD", "LOAD_ATTR") and i.argval == "wait" for i in last)


def _returns_at_once(name: str) -> bool:
    """True if a function of torch.distributed only returns information, such as get_rank."""
    home = sys.modules.get("torch.distributed")
    return name.startswith(("get_", "is_", "supports_")) and hasattr(home, name)


def _cpu_ns(thread: int) -> int:
    """Return the CPU time of a living thread in ns; 0 if the system does not report it."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0
    return time.clock_gettime_ns(time.pthread_getcpuclockid(thread))


class GloosLoops:
    """An estimate of the CPU time that gloo's threads use at rest, when they only poll.

    gloo has such a thread for each group. Fifty of them would look like a rank at work.
    """

    NAME = "gloo_tcp_loop"
    SHARE = 0.002  # CPU seconds per second of a thread (measured: 0.0009 to 0.0015)
    LOOKS = 3  # looks at the name of a thread, which a new thread takes a little later

    def __init__(self) -> None:
        self._looks: Counter[str] = Counter()  # thread -> number of looks at its name
        self._loops: set[str] = set()
        self._since_ns, self._used_ns = time.perf_counter_ns(), 0

    def used_ns(self) -> int:
        """Return the estimate for the time since the first call, in ns."""
        now = time.perf_counter_ns()
        self._used_ns += int(self.SHARE * self._number() * (now - self._since_ns))
        self._since_ns = now
        return self._used_ns

    def _number(self) -> int:
        tasks = Path("/proc/self/task")
        try:
            threads = os.listdir(tasks)
        except OSError:  # the system is not Linux
            return 0
        for thread in threads:
            if thread not in self._loops and self._looks[thread] < self.LOOKS:
                self._looks[thread] += 1
                with suppress(OSError):  # the thread has ended
                    if (tasks / thread / "comm").read_text() == f"{self.NAME}\n":
                        self._loops.add(thread)
        return len(self._loops.intersection(threads))


def _has_children() -> bool:
    """True if this process has running child processes; always False if the system is not Linux."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            if listed.read_bytes().strip():
                return True
    return False


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from running in this thread.

    Asking for another thread's frame allocates memory. The allocation may start a collection, and a
    finalizer may release the GIL. Then the other thread may return from the frame while Python 3.11
    makes an object of the frame, and Python crashes.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Agent(threading.Thread):
    """Writes the rank's status into its black box five times a second.

    The agent runs only when the main thread releases the GIL, as gloo does in every wait.
    """

    BEAT = 0.2  # seconds
    BUSY = 0.01  # CPU seconds per second: a thread that uses more is computing

    def __init__(self, recorder: Recorder, box: BlackBox) -> None:
        super().__init__(name="ddpkit-agent", daemon=True)
        self.recorder, self.box = recorder, box
        self.phase = "starting"
        self.stopped = threading.Event()
        self._main = threading.main_thread().ident
        self._beats = 0
        self._loops = GloosLoops()
        self._at: tuple[int, int] | None = None  # frame and instruction of the main thread
        # the user's line, and the call in this line
        self._where: tuple[tuple[str, int], str] = ("", 0), "wrapper"
        self._calls = 0  # number of calls in the black box at the last look
        self._counted_ns = 0  # counted compute at the last look
        self._used: tuple[int, int] | None = None  # last look's time, and the CPU time until then

    def run(self) -> None:
        while True:
            self.box.write_status(self.status())
            if self.stopped.wait(self.BEAT):
                return

    def begin(self) -> None:
        """Report from now on that the rank runs.

        Call this method just before the rank's function.
        """
        self.phase = "running"

    def status(self) -> RankStatus:
        """Return the rank's present status."""
        with _no_collection():
            return self._look()

    def _look(self) -> RankStatus:
        recorder = self.recorder
        recorder.under_way()  # counts ended calls in `moved`
        if self._goes_on():
            return self._status(self._where, None)
        self._calls = self.box.calls_written
        frames = _stands()
        frame = frames.get(self._main or 0)
        computes = frame is not None and self._main_computes()
        where, via = (frame.where, frame.via) if frame else (("", 0), "wrapper")
        waiting = recorder.waits.get(self._main or 0) or self._hidden_wait(frame, computes=computes)
        waiting = waiting or self._wait_for_gpu(frame)
        if waiting and any(self._is_at_work(*thread) for thread in frames.items()):
            waiting = None
        if waiting and waiting.what.keys and _has_children():  # a child process may set the key
            waiting = None
        self._where = where, via
        return self._status(self._where, waiting)

    def _goes_on(self) -> bool:
        """True if the main thread's counted compute has advanced since the last look.

        A thread that computes does not wait, so the agent does not look at the thread's frames: see
        the module's docstring.
        """
        if self.recorder.counted_ns is None:
            return False
        before, self._counted_ns = self._counted_ns, self.recorder.counted_ns()
        return before != self._counted_ns

    def _status(self, at: tuple[tuple[str, int], str], waiting: RecordedCall | None) -> RankStatus:
        recorder, (where, via) = self.recorder, at
        self._beats += 1
        return RankStatus(
            beat=self._beats,
            phase=self.phase,
            where=where,
            via=via,
            waiting=waiting.numbered() if waiting else None,
            moved=recorder.moved,
            calls=self._calls,
            wall_ns=time.perf_counter_ns(),
            # The time of all threads except the agent: gloo's thread moves bytes while the main
            # thread waits. CUDA spins in a wait, so there the CPU time tells nothing.
            cpu_ns=0
            if waiting and waiting.on_gpu
            else time.process_time_ns() - time.thread_time_ns() - self._loops.used_ns(),
        )

    def _main_computes(self) -> bool:
        """True if the main thread has computed since the last look, and so is not waiting."""
        assert self._main is not None
        now, used = time.perf_counter_ns(), _cpu_ns(self._main)
        since, used_then = self._used or (now, used)
        self._used = now, used
        return used - used_then > self.BUSY * (now - since)

    def _is_at_work(self, thread: int, frame: Stand) -> bool:
        """True if a thread of the user's, not the main thread, may still end the rank's wait.

        A thread may end the rank's wait unless the thread itself waits for communication, or for a
        lock without a timeout.
        """
        if thread in (self._main, self.ident) or thread in self.recorder.waits:
            return False
        if not frame.where[0]:
            return False
        if os.path.basename(frame.f_code.co_filename) == "threading.py":
            return frame.f_locals.get("timeout") is not None
        return self._hidden_wait(frame) is None

    def _wait_for_gpu(self, frame: Stand | None) -> RecordedCall | None:
        """Return a call that the GPU has not finished, if the main thread stands still.

        The thread stands still if its frame and instruction have not changed since the last look.
        Then the thread reads a value (`loss.item()`), and waits for all work in the GPU's queue.
        """
        at = (frame.number, frame.f_lasti) if frame else None
        stood, self._at = at == self._at, at
        left = (call for call in self.recorder.under_way() if call.on_gpu)
        return next(left, None) if stood else None

    def _hidden_wait(self, frame: Stand | None, *, computes: bool = False) -> RecordedCall | None:
        """Return the call in which the main thread waits outside ddpkit's Python code, or None.

        The wait is for a store, for a future, or in DDP's C++ reducer.
        """
        if frame is None:
            return None
        filename, function = frame.f_code.co_filename, frame.f_code.co_name
        pending = self.recorder.under_way()
        if function == torch_private.IN_BACKWARD or (pending and _in_compiled_wait(frame)):
            # The thread may also compute here; its CPU time will tell.
            return next(iter(pending), None)
        where, via = frame.where, frame.via
        if os.path.dirname(filename) == os.path.join(PACKAGE, "rank", "group"):
            making = frame.f_locals if function == "_make" else {}
            group, members = making.get("name", ""), making.get("members", ())
            return RecordedCall(Call(via, group, where, members=members))
        # A rank can compute inside torch's code too: in DTensor, FSDP, DDP's hooks, or a loop over
        # is_set().
        if computes:
            return None
        if os.path.basename(filename) == "threading.py":  # the other thread may communicate
            return next(iter(list(self.recorder.waits.values())), None)
        if os.sep + os.path.join("torch", "distributed") + os.sep in filename:
            return None if _returns_at_once(via) else RecordedCall(Call(via, where=where))
        return None
