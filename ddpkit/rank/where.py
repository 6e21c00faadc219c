"""Where code is: the reader's own line, not torch's nor ours."""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from types import FrameType

from ddpkit import files
from ddpkit.source import MAGICS

PACKAGE = str(files.PACKAGE) + os.sep
_ANSWERS = os.path.join(PACKAGE, "answers")
_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))
_STDLIB = sysconfig.get_path("stdlib") + os.sep


@cache
def is_user_file(filename: str) -> bool:
    """Whether code of this file is the reader's: neither a library's, nor this package's own."""
    if filename.startswith("<"):
        return filename.startswith(("<ipython", "<stdin", *MAGICS))
    if any(folder in filename for folder in _INSTALLED):
        return False
    if filename.startswith(PACKAGE):
        return filename.startswith(_ANSWERS)
    return not filename.startswith(_STDLIB)


def user_call(frame: FrameType | None, called: str = "wrapper") -> tuple[tuple[str, int], str]:
    """The innermost line of the user's code, and the name of the function that it called.

    `called` is what the frame itself has called.
    """
    inner = called
    while frame is not None:
        code = frame.f_code
        if is_user_file(code.co_filename):
            return (code.co_filename, frame.f_lineno), inner
        # torch logs and decorates its functions: the name is that of the one inside.
        if code.co_name not in ("wrapper", "decorate_context", "__call__"):
            inner = code.co_name
        frame = frame.f_back
    return ("", 0), inner
