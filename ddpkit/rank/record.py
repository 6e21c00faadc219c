"""What a rank writes down about itself while it runs: its calls, its spans, where it is.

One `Recorder` belongs to a run on a rank. It hears of communication from `group`, through which
every call into torch.distributed passes, and of compute from `compute`, torch's own global hooks,
so that a student's code needs no change to be seen.
"""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

from ddpkit.rank.blackbox import BlackBox
from ddpkit.source import MAGICS
from ddpkit.trace import Span

MAX_SPANS = 200_000  # of a rank: some 60 MB; the newest are kept


@dataclass(slots=True)
class Call:
    """One call into torch.distributed, from the moment it is posted."""

    op: str  # torch.distributed's name of it: "all_reduce", "send"
    group: str
    seq: int  # of a collective: which of its group; of a message: which from src to dst
    where: tuple[str, int]  # file and line of the user's code
    via: str = ""  # the function the user called there, where it is not `op`: "backward"
    peer: int | None = None  # global rank; None for a collective, or for a recv from any source
    root: int | None = None
    tag: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    bytes: int = 0
    reduce: str = ""
    members: tuple[int, ...] = ()
    posted_ns: int = 0
    blocked_ns: int | None = None  # since when the main thread waits for it
    work: Any = None  # the backend's own handle of it

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the black box, without what is empty and who is in the default group."""
        pairs = ((name, getattr(self, name)) for name in self.__slots__ if name != "work")
        plain = {name: value for name, value in pairs if value not in (None, "", ())}
        if not self.group:
            plain.pop("members", None)
        if due_ns := getattr(self.work, "due_ns", 0):  # the emulated link has it till then
            plain["due_ns"] = due_ns
        return plain


@dataclass
class Recorder:
    """The calls and spans of one rank during one run."""

    rank: int
    box: BlackBox | None = None
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    pending: dict[int, Call] = field(default_factory=dict)
    waits: dict[int, Call] = field(default_factory=dict)  # what each thread waits for right now
    moved: int = 0  # grows whenever a call is posted or done
    spans_made: int = 0
    _seqs: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # several threads may post

    def posted(self, op: str, group: str, **details: Any) -> Call:
        """Write down a call that is about to be made."""
        where, via = user_call(sys._getframe(1))
        peer, tag = details.get("peer"), details.get("tag", 0)
        key = (group, op, peer, tag) if op in ("send", "recv") else (group,)
        with self._lock:
            self._seqs[key] += 1
            call = Call(op, group, self._seqs[key], where, "" if via == op else via, **details)
            self.moved += 1
            self.pending[id(call)] = call
            if self.box is not None:
                self.box.write_call(call.as_dict())
        call.posted_ns = time.perf_counter_ns()
        return call

    def done(self, call: Call) -> None:
        """A call has ended. Told more than once (by a wait and by a callback), the first counts."""
        now = time.perf_counter_ns()
        if self.pending.pop(id(call), None) is None:
            return
        self.moved += 1
        self.add(
            Span(
                self.rank,
                "comm",
                call.op,
                "comm",
                call.posted_ns,
                now,
                bytes=call.bytes,
                peer=call.peer,
                group=call.group,
                seq=call.seq,
                blocked_ns=call.blocked_ns,
                args={"line": call.where[1], "tag": call.tag, "group_size": len(call.members)},
            )
        )

    def finish(self) -> None:
        """The function has returned: what it posted and never waited for ends here."""
        for call in list(self.pending.values()):
            self.done(call)

    def add(self, span: Span) -> None:
        self.spans.append(span)
        self.spans_made += 1

    def compute(self, kind: str, name: str, start_ns: int, end_ns: int | None = None) -> None:
        end_ns = time.perf_counter_ns() if end_ns is None else end_ns
        if end_ns > start_ns:
            self.add(Span(self.rank, "compute", name, kind, start_ns, end_ns))


_current: Recorder | None = None


def current() -> Recorder | None:
    """The recorder of the run this process is in; None outside a run."""
    return _current


def activate(recorder: Recorder | None) -> None:
    global _current
    _current = recorder


@contextmanager
def span(name: str) -> Iterator[None]:
    """Name a stretch of a rank's own work, so that the timeline shows it as compute.

    ```python
    with span("add the chunks"):
        mine += received
    ```
    Outside a run it does nothing, so a function that uses it also runs on its own.
    """
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        if _current is not None:
            _current.compute("span", name, start)


# Where a rank is: the reader's line, not torch's nor ours.

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_ANSWERS = os.path.join(_HERE, "answers")
_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))
_STDLIB = sysconfig.get_path("stdlib") + os.sep


@cache
def is_user_file(filename: str) -> bool:
    """Whether code of this file is the reader's: neither a library's, nor this package's own."""
    if filename.startswith("<"):
        return filename.startswith(("<ipython", "<stdin", *MAGICS))
    if any(folder in filename for folder in _INSTALLED):
        return False
    if filename.startswith(_HERE):
        return filename.startswith(_ANSWERS)
    return not filename.startswith(_STDLIB)


def user_call(frame: FrameType | None) -> tuple[tuple[str, int], str]:
    """The innermost line of the user's code, and the name of the function that it called."""
    inner = "wrapper"
    while frame is not None:
        code = frame.f_code
        if is_user_file(code.co_filename):
            return (code.co_filename, frame.f_lineno), inner
        # torch logs and decorates its functions: the name is that of the one inside.
        if code.co_name not in ("wrapper", "decorate_context", "__call__"):
            inner = code.co_name
        frame = frame.f_back
    return ("", 0), inner


def _in_compiled_wait(frame: FrameType) -> bool:
    """Whether a frame has called `x.wait()` of something compiled, as the future of a Work is.

    Seen in the bytecode: what runs there has no frame of its own.
    """
    done = (i for i in dis.get_instructions(frame.f_code) if i.offset < frame.f_lasti)
    last = deque((i for i in done if i.opname != "PRECALL"), maxlen=1)
    return any(i.opname in ("LOAD_METHOD", "LOAD_ATTR") and i.argval == "wait" for i in last)


class Agent(threading.Thread):
    """Writes the rank's status into its black box five times a second; independent of its main
    thread, as long as that lets go of the GIL now and then (gloo does, in every wait)."""

    BEAT = 0.2  # seconds

    def __init__(self, recorder: Recorder, box: BlackBox) -> None:
        super().__init__(name="ddpkit-agent", daemon=True)
        self.recorder, self.box = recorder, box
        self.phase = "starting"
        self.stopped = threading.Event()
        self._main = threading.main_thread().ident
        self._beats = 0

    def run(self) -> None:
        while True:
            self.box.write_status(self.status())
            if self.stopped.wait(self.BEAT):
                return

    def status(self) -> dict[str, Any]:
        """Where the rank is: plain data, documented by `monitor.Look`."""
        recorder = self.recorder
        frames = sys._current_frames()
        frame = frames.get(self._main or 0)
        (file, line), via = user_call(frame)
        waiting = recorder.waits.get(self._main or 0) or self._hidden_wait(frame)
        if waiting and any(self._is_at_work(*thread) for thread in frames.items()):
            waiting = None
        self._beats += 1
        return {
            "beat": self._beats,
            "phase": self.phase,
            "where": (file, line),
            "via": via,
            "waiting": waiting.as_dict() if waiting else None,
            "moved": recorder.moved,
            "wall_ns": time.perf_counter_ns(),
            # Of all threads but this one: gloo's own moves bytes while the main thread waits.
            "cpu_ns": time.process_time_ns() - time.thread_time_ns(),
        }

    def _is_at_work(self, thread: int, frame: FrameType) -> bool:
        """Whether a thread of the user's, beside the main one, may yet end the rank's wait.

        It does so unless it waits itself: for communication, or for a lock without a limit.
        """
        if thread in (self._main, self.ident) or thread in self.recorder.waits:
            return False
        if not user_call(frame)[0][0]:
            return False
        if os.path.basename(frame.f_code.co_filename) == "threading.py":
            return frame.f_locals.get("timeout") is not None
        return self._hidden_wait(frame) is None

    def _hidden_wait(self, frame: FrameType | None) -> Call | None:
        """A wait that passes no Python of ours: for a store, a future, or in DDP's C++ reducer."""
        if frame is None:
            return None
        filename, function = frame.f_code.co_filename, frame.f_code.co_name
        if function == "_engine_run_backward" or _in_compiled_wait(frame):
            # It may as well compute: whether the process stands still, its CPU time will tell.
            return next(iter(list(self.recorder.pending.values())), None)
        if os.path.basename(filename) == "threading.py":  # joining a thread that communicates
            return next(iter(list(self.recorder.waits.values())), None)
        if os.sep + os.path.join("torch", "distributed") + os.sep in filename or (
            filename == os.path.join(_HERE, "rank", "group.py")
        ):
            where, via = user_call(frame)
            return Call(via, "", 0, where)
        return None
