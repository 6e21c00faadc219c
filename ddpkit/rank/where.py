"""Where a thread is: in which line of the reader's, and in which call there."""

from __future__ import annotations

from types import FrameType

from ddpkit.source import RANK_MAIN, is_user_file


def user_call(frame: FrameType | None, called: str = "wrapper") -> tuple[tuple[str, int], str]:
    """The innermost line of the user's code, and the name of the function that it called.

    `called` is what the frame itself has called.
    """
    inner = called
    while frame is not None and (code := frame.f_code).co_filename != RANK_MAIN:
        if is_user_file(code.co_filename):
            return (code.co_filename, frame.f_lineno), inner
        # torch logs and decorates its functions: the name is that of the one inside.
        if code.co_name not in ("wrapper", "decorate_context", "__call__"):
            inner = code.co_name
        frame = frame.f_back
    return ("", 0), inner
