"""Processes that a script starts for its ranks: the ranks of the run take their places.

`Process(target=work, args=(rank, size))` for each rank is a launcher of a script's own. Under
torchrun, every rank would start all these processes. So process number k runs on rank k, inside the
call of `start()`, as with `mp.spawn`. Other processes start as usual: a process counts as a rank if
its function, or a function of the script that it calls, calls `init_process_group`.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.queues
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ddpkit.source import is_user_file

JOINS = "init_process_group"
SHARED = (
    multiprocessing.queues.Queue,
    multiprocessing.queues.SimpleQueue,
    multiprocessing.connection.Connection,
)


@contextmanager
def ranks_as_processes(act: Callable[[int, Callable[[], object]], None]) -> Iterator[None]:
    """A block in which the start of a process that is a rank calls `act(number, run)`.

    number  the number of such processes that were started before
    run     runs the process's function
    """
    kind: Any = multiprocessing.process.BaseProcess
    original, number, pid = kind.start, 0, os.getpid()

    @functools.wraps(original)
    def start(process: Any) -> None:
        nonlocal number
        if os.getpid() != pid or not joins(process):
            original(process)
            return
        _refuse_shared(process)
        number += 1
        process._popen = EndedProcess()
        act(number - 1, functools.partial(_run, process))

    kind.start = start
    try:
        yield
    finally:
        kind.start = original


def joins(process: Any) -> bool:
    """True if a process calls `init_process_group`, as far as the code of the script shows."""
    given = [*process._args, *process._kwargs.values()]
    todo: list[Any] = [process._target, type(process).run, *filter(callable, given)]
    seen: set[types.CodeType] = set()
    while todo:
        function = todo.pop()
        function = inspect.unwrap(getattr(function, "func", function))  # functools.partial
        function = getattr(function, "__func__", function)  # a method
        code = getattr(function, "__code__", None)
        if code is None or code in seen or not is_user_file(code.co_filename):
            continue
        seen.add(code)
        for inner in _codes(code):
            if JOINS in inner.co_names:
                return True
            todo += [function.__globals__.get(name) for name in inner.co_names]
    return False


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of the functions that it defines."""
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _codes(value)


def _run(process: Any) -> None:
    """Run a process's function. Raises SystemExit for an exit code other than 0."""
    try:
        process.run()
    except SystemExit as left:
        if left.code not in (None, 0):
            raise


def _refuse_shared(process: Any) -> None:
    """Raise RuntimeError if a process shares a queue: a rank's queue reaches no other rank."""
    for value in (*process._args, *process._kwargs.values()):
        if isinstance(value, SHARED):
            raise RuntimeError(
                f"the script's processes share a {type(value).__name__}, but under `ddpkit run` "
                f"each process runs on a rank, and no {type(value).__name__} of a rank reaches "
                "another rank: send the values with dist.gather_object"
            )


class EndedProcess:
    """The state of a process that has ended well."""

    pid, returncode, sentinel = os.getpid(), 0, 0

    def poll(self, *_: object) -> int:
        """Return the exit code."""
        return 0

    wait = poll

    def terminate(self) -> None:
        """Do nothing, because the process has ended."""

    kill = interrupt = close = terminate
