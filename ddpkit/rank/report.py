"""Turns an exception of a rank into plain data, which the notebook can always read."""

from __future__ import annotations

import inspect
import traceback
from bdb import BdbQuit
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import cloudpickle

from ddpkit.protocol.call import to_itself
from ddpkit.protocol.raised import Frame, MemoryFull, Raised
from ddpkit.rank.keyboard import NO_DEBUGGER
from ddpkit.source import is_user_file
from ddpkit.torch_private import NOT_ONESELF

if TYPE_CHECKING:
    from collections.abc import Callable

DEEP, MANY = 5, 5  # limits of a report: causes of causes, and exceptions of one group


class UnsendableResultError(Exception):
    """Raised if the function has returned, but its result cannot be pickled."""

    def __init__(self, function: Callable[..., object], result: object, error: Exception) -> None:
        super().__init__(
            f"the function returned a {type(result).__name__} that cannot be sent back "
            f"({type(error).__name__}: {error}). Return tensors, numbers, strings, lists or dicts."
        )
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.frames: tuple[Frame, ...] = ()
        if code is not None:
            self.frames = (Frame(code.co_filename, code.co_firstlineno, code.co_name),)


def report(error: BaseException) -> Raised:
    """Return an exception as plain data, because the notebook may be unable to unpickle it."""
    try:
        pickled = cloudpickle.dumps(error)  # cloudpickle, because a cell may define the class
    except Exception:
        pickled = b""
    text = "".join(traceback.format_exception(type(error), error, _from_users(error)))
    return replace(_known(error, DEEP), traceback=text, pickled=pickled)


def _known(error: BaseException, deep: int) -> Raised:
    """Return an exception, its cause, and the exceptions of its exception group, as plain data."""
    cause = error.__cause__ if deep else None
    grouped = error.exceptions if deep and isinstance(error, BaseExceptionGroup) else ()
    full = vars(error).get("full")
    return Raised(
        type=type(error).__name__,
        message=_message(error),
        frames=_frames(error),
        exit_code=_exit_code(error.code) if isinstance(error, SystemExit) else None,
        unsendable=isinstance(error, UnsendableResultError),
        cause=None if cause is None else _known(cause, deep - 1),
        exceptions=tuple(_known(each, deep - 1) for each in grouped[:MANY]),
        full=full if isinstance(full, MemoryFull) else None,
    )


def _from_users(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first line of the user's code on."""
    inner = error.__traceback__
    while inner is not None and not is_user_file(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    if isinstance(error, SyntaxError) and is_user_file(error.filename or "<unknown>"):
        return inner  # a SyntaxError names its line, which never ran
    return inner or error.__traceback__


def _message(error: BaseException) -> str:
    if isinstance(error, BdbQuit):
        return NO_DEBUGGER
    try:
        return _to_itself(error) or str(error)
    except Exception as failed:
        return f"<its __str__ raised {type(failed).__name__}>"


def _to_itself(error: BaseException) -> str:
    """Return ddpkit's message for a `dist.send` from a rank to itself; "" for any other error.

    torch's message does not name the rank. torch accepts an `isend` to oneself; ddpkit refuses it
    with the same message.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if len(frames) < 2 or frames[-1].f_code.co_name != NOT_ONESELF:
        return ""
    known = frames[-1].f_locals
    argument = "dst" if known["rank_type"] == "destination" else "src"
    return to_itself(frames[-2].f_code.co_name, argument, known["rank"])


def _frames(error: BaseException) -> tuple[Frame, ...]:
    """Return the lines of the user's code in an exception's traceback, outermost first."""
    if isinstance(error, UnsendableResultError):
        return error.frames
    if isinstance(error, SyntaxError) and error.filename:
        return (Frame(error.filename, error.lineno or 0),)
    frames = traceback.extract_tb(error.__traceback__)
    return tuple(
        Frame(f.filename, f.lineno or 0, f.name) for f in frames if is_user_file(f.filename)
    )


def _exit_code(code: object) -> int:
    """Return the interpreter's exit code for `sys.exit(code)`."""
    if code is None:
        return 0
    return code if isinstance(code, int) else 1
