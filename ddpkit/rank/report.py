"""An exception of a rank as plain data, which the notebook can always read."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

import cloudpickle

from ddpkit.source import is_user_file


class UnsendableResultError(Exception):
    """The function has returned, and what it returned cannot be pickled."""

    def __init__(self, function: Any, result: Any, error: Exception) -> None:
        super().__init__(
            f"the function returned a {type(result).__name__} that cannot be sent back "
            f"({type(error).__name__}: {error}). Return tensors, numbers, strings, lists or dicts."
        )
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.frames = [(code.co_filename, code.co_firstlineno, code.co_name)] if code else []


def report(error: BaseException) -> dict[str, Any]:
    """An exception as plain data: the notebook may not be able to unpickle the exception itself."""
    frames = [
        (frame.filename, frame.lineno or 0, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    try:
        pickled = cloudpickle.dumps(error)  # its class may be one of a cell
    except Exception:
        pickled = b""
    try:
        message = str(error)
    except Exception as failed:
        message = f"<its __str__ raised {type(failed).__name__}>"
    frames = [frame for frame in frames if is_user_file(frame[0])]
    if isinstance(error, UnsendableResultError):
        frames = error.frames
    if isinstance(error, SyntaxError) and error.filename:
        frames = [(error.filename, error.lineno or 0, "")]
    return {
        "type": type(error).__name__,
        "message": message,
        "exit": error.code if isinstance(error, SystemExit) else None,
        "unsendable": isinstance(error, UnsendableResultError),
        "frames": frames,
        "traceback": "".join(traceback.format_exception(error)),
        "pickled": pickled,
    }
