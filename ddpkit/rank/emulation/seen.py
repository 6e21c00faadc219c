"""Makes the functions of `time` return the rank's clock to the user's code, on an emulated machine.

The functions that return the time are replaced in the module `time`, and in each module that has
imported such a function by name. The standard library and ddpkit still use real time, for example
for a lock with a timeout, a queue, or a wait for a process. With an emulated clock such waits would
never end (a thread that waits for a queue uses no CPU). So each function looks at its caller, and
returns emulated time only to the user's code.

asyncio's loop waits for its timers by the emulated clock: if the loop has nothing else to do, the
clock moves forward to the next timer. While another thread works, or a child process or a socket
may still send data, the loop waits in real time, and the clock advances with real time. `datetime`
and torch.profiler have clocks in C, and stay real, as does CPU time (`time.process_time`).
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from types import FrameType
from typing import Any

from ddpkit.rank.emulation.clock import Clocks
from ddpkit.torch_private import COMPILED

# These parts of the standard library show time to people, or wait on the user's behalf.
FOR_USERS = frozenset({"asyncio", "timeit", "logging", "sched", "profile", "cProfile", "pstats"})
# These packages wait for processes, for files or for the net, with a time limit.
WAIT = {"filelock", "portalocker", "psutil", "joblib", "zmq", "tornado", "urllib3", "requests"}
WAIT |= {"httpx", "httpcore", "fsspec", "huggingface_hub", "triton"}
WAIT_IN_TORCH = ("torch.distributed", *COMPILED)
REAL = (sys.stdlib_module_names - FOR_USERS - {"__main__"}) | {"ddpkit"} | WAIT
USERS_OF_THE_KIT = ("ddpkit.answers", "ddpkit.checks")
LOOK = 0.01  # real seconds between two looks for events and for other threads' work
POOL = os.path.join("concurrent", "futures", "thread.py")  # a pool's workers wait here for work
WAITS_IN_THREADING = frozenset({"wait", "join", "_wait_for_tstate_lock"})
SLEEP_AT_LEAST = 50e-6  # real seconds, in which other threads get to run

TELLS = [name + suffix for name in ("time", "monotonic", "perf_counter") for suffix in ("", "_ns")]
SHOWN = (*TELLS, "sleep", "clock_gettime", "clock_gettime_ns")

real_sleep = time.sleep


def _is_real(name: str) -> bool:
    """Return True if the code of the module `name` sees real time."""
    package = name.partition(".")[0]
    if package == "ddpkit":
        return not name.startswith(USERS_OF_THE_KIT)
    return package in REAL or name.startswith(WAIT_IN_TORCH)


def _caller() -> str:
    return str(sys._getframe(2).f_globals.get("__name__", ""))


def _replacements(clocks: Clocks, epoch_ns: int) -> dict[str, Callable[..., object]]:
    """Return the functions of `time` as the user's code sees them."""

    def look() -> int:
        if clocks.looked is not None:
            clocks.looked(sys._getframe(2))
        return clocks.mine.look()

    def tells(name: str, ns_from: int) -> Callable[..., object]:
        real = getattr(time, name)
        if name.endswith("_ns"):

            def in_ns() -> int:
                if _is_real(_caller()):
                    return int(real())
                return ns_from + look()

            return in_ns

        def in_s() -> float:
            if _is_real(_caller()):
                return float(real())
            return (ns_from + look()) / 1e9

        return in_s

    def sleep(seconds: float) -> None:
        if _is_real(_caller()):
            real_sleep(seconds)
            return
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        clocks.mine.pass_by(round(seconds * 1e9))
        real_sleep(0 if clocks.mine is clocks.main else SLEEP_AT_LEAST)

    found = {name: tells(name, epoch_ns if name in ("time", "time_ns") else 0) for name in TELLS}
    found["sleep"] = sleep
    if not hasattr(time, "clock_gettime"):  # Windows
        return _named(found)
    gettime, gettime_ns = time.clock_gettime, time.clock_gettime_ns
    shown = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)

    def clock_gettime(clock: int) -> float:
        if _is_real(_caller()):
            return gettime(clock)
        return clock_time(clock) / 1e9 if clock in shown else gettime(clock)

    def clock_gettime_ns(clock: int) -> int:
        if _is_real(_caller()):
            return gettime_ns(clock)
        return clock_time(clock) if clock in shown else gettime_ns(clock)

    def clock_time(clock: int) -> int:
        return (epoch_ns if clock == time.CLOCK_REALTIME else 0) + clocks.mine.look()

    found["clock_gettime"], found["clock_gettime_ns"] = clock_gettime, clock_gettime_ns
    return _named(found)


def _named(functions: dict[str, Callable[..., object]]) -> dict[str, Callable[..., object]]:
    """Return the functions, renamed like the originals: pickle sends functions by their names."""
    for name, function in functions.items():
        function.__name__ = function.__qualname__ = name
        function.__module__ = "time"
    return functions


_tellers: list[tuple[object, str]] = []  # a module, and its name for a function of `time`
_looked_at = 0  # number of modules that were searched


def look_for_tellers() -> None:
    """Find the modules that have imported functions of `time` by name.

    The search touches every object of every module: in a forked rank, the search would copy most of
    the pages that the ranks share, 37 MB. So the forkserver searches (`ddpkit.rank.preload`), and a
    rank searches only the modules that it has imported since.
    """
    _tellers.clear()
    _look_at(list(sys.modules.values()))


def _look_at(modules: list[object]) -> None:
    global _looked_at
    _looked_at = len(sys.modules)
    shown = {id(getattr(time, name)) for name in SHOWN if hasattr(time, name)}
    for module in modules:
        name = getattr(module, "__name__", "")
        if module is not time and (not isinstance(name, str) or _is_real(name)):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in shown:
                _tellers.append((module, attribute))


@contextmanager
def seen(clocks: Clocks, epoch_ns: int) -> Iterator[None]:
    """A block in which the user's code reads the rank's clock; it is 0 at the date `epoch_ns`."""
    with ExitStack() as undo:
        emulated = _replacements(clocks, epoch_ns)
        by_real = {id(getattr(time, name)): function for name, function in emulated.items()}
        _look_at(list(islice(reversed(sys.modules.values()), len(sys.modules) - _looked_at)))
        for module, attribute in _tellers:
            value = getattr(module, attribute, None)
            if id(value) in by_real:
                undo.callback(setattr, module, attribute, value)
                setattr(module, attribute, by_real[id(value)])
        _replace_timer(undo, by_real)
        _replace_selector(undo, clocks)
        _replace_import(undo, clocks)
        yield


def _replace_timer(undo: ExitStack, by_real: dict[int, Callable[..., Any]]) -> None:
    """Replace the timer of `timeit`, which several functions of `timeit` have as a default."""
    import timeit

    for function in (timeit.Timer.__init__, timeit.timeit, timeit.repeat):
        before = function.__defaults__ or ()
        undo.callback(setattr, function, "__defaults__", before)
        function.__defaults__ = tuple(by_real.get(id(value), value) for value in before)
    undo.callback(setattr, timeit, "default_timer", timeit.default_timer)
    timeit.default_timer = by_real.get(id(timeit.default_timer), timeit.default_timer)


def _replace_selector(undo: ExitStack, clocks: Clocks) -> None:
    """Make an asyncio loop that waits for a timer put the clock forward."""
    import selectors

    kind = selectors.DefaultSelector
    real = kind.select
    in_pools = _count_work_of_pools(undo)

    def select(self: Any, timeout: float | None = None) -> object:
        if timeout is None or timeout <= 0 or not _caller().startswith("asyncio"):
            return real(self, timeout)
        if events := real(self, 0):
            return events
        begun = time.monotonic()
        left = timeout
        while left > 0 and (len(self.get_map()) > 1 or _another_thread_works(in_pools)):
            events = real(self, min(left, LOOK))
            clocks.mine.pass_by(round(min(left, time.monotonic() - begun) * 1e9))
            if events:
                return events
            left -= time.monotonic() - begun
            begun = time.monotonic()
        if events := real(self, 0):  # events of a thread that worked a moment ago
            return events
        clocks.mine.pass_by(round(max(0.0, left) * 1e9))
        return real(self, 0)

    undo.callback(setattr, kind, "select", real)
    setattr(kind, "select", select)  # noqa: B010  # a method, to mypy


def _count_work_of_pools(undo: ExitStack) -> set[object]:
    """Return the set of unfinished futures of all thread pools; the set is kept up to date.

    The frames of workers do not suffice: a worker that has just taken work from the queue looks
    like a worker that waits for work.
    """
    from concurrent.futures import ThreadPoolExecutor

    under_way: set[object] = set()
    real = ThreadPoolExecutor.submit

    def submit(
        self: Any, function: Callable[..., object], /, *args: object, **kwargs: object
    ) -> object:
        future = real(self, function, *args, **kwargs)
        under_way.add(future)
        future.add_done_callback(under_way.discard)  # called at once if the future is done
        return future

    undo.callback(setattr, ThreadPoolExecutor, "submit", real)
    setattr(ThreadPoolExecutor, "submit", submit)  # noqa: B010  # a method, to mypy
    return under_way


def _another_thread_works(in_pools: set[object]) -> bool:
    """Return True if another thread of the user's code may be working."""
    others = {
        thread.ident
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and not thread.name.startswith("ddpkit-")
    }
    if not others:
        return False
    if None in others:  # a thread has been started, and has not begun
        return True
    collects = gc.isenabled()
    gc.disable()  # while frames of other threads are looked at (`rank.agent`)
    try:
        frames = sys._current_frames()
        return not all(_rests(frames[thread], in_pools) for thread in others if thread in frames)
    finally:
        frames = {}
        if collects:
            gc.enable()


def _rests(frame: FrameType, in_pools: set[object]) -> bool:
    """Return True if a thread waits for another thread, which has not woken it yet."""
    if frame.f_code.co_filename.endswith(POOL):
        return not in_pools
    if frame.f_code.co_filename != threading.__file__:
        return False
    if frame.f_code.co_name not in WAITS_IN_THREADING:
        return False  # the thread begins, or ends
    names = frame.f_locals
    waiter, condition = names.get("waiter"), names.get("self")
    if waiter is None or not isinstance(condition, threading.Condition):
        return True
    return waiter in condition._waiters  # type: ignore[attr-defined]  # a notified one is absent


def _replace_import(undo: ExitStack, clocks: Clocks) -> None:
    """Make imports take no time: a real machine has imported its modules before the first step."""
    bootstrap: Any = importlib._bootstrap
    find = bootstrap._find_and_load

    def find_and_load(*args: object) -> object:
        with clocks.mine.stopped():
            return find(*args)

    undo.callback(setattr, bootstrap, "_find_and_load", find)
    bootstrap._find_and_load = find_and_load
