"""Finds the line of the user's code that a thread executes, and the function called there."""

from __future__ import annotations

from types import FrameType

from ddpkit.source import RANK_MAIN, is_user_file


def user_call(frame: FrameType | None, called: str = "wrapper") -> tuple[tuple[str, int], str]:
    """Return the innermost line of the user's code, and the name of the function that it calls.

    `called` is the name of the function that `frame` itself has called.
    """
    inner = called
    while frame is not None and (code := frame.f_code).co_filename != RANK_MAIN:
        if is_user_file(code.co_filename):
            return (code.co_filename, frame.f_lineno), inner
        # torch logs and decorates its functions: use the name of the inner function.
        if code.co_name not in ("wrapper", "decorate_context", "__call__"):
            inner = code.co_name
        frame = frame.f_back
    return ("", 0), inner
