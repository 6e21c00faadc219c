"""Whose code a file is, and what a reader calls a line of it: "Cell In[5], line 12"."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from functools import cache

# What IPython calls the code of a cell under a magic that compiles it, and what a reader calls it.
MAGICS = {
    "<timed exec>": "%%time cell",
    "<timed eval>": "%%time cell",
    "<magic-timeit>": "%%timeit cell",
}
PACKAGE = os.path.join(os.path.dirname(__file__), "")
_ANSWERS = os.path.join(PACKAGE, "answers", "")
_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))
_STDLIB = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))


@cache
def is_user_file(filename: str) -> bool:
    """Whether code of this file is the reader's: neither a library's, nor this package's own.

    The course's answers count as the reader's: `carry` puts them in the place of an own answer.
    """
    if filename.startswith("<"):
        return filename.startswith(("<ipython", "<stdin", *MAGICS))
    if any(folder in filename for folder in _INSTALLED):
        return False
    if filename.startswith(PACKAGE):
        return filename.startswith(_ANSWERS)
    return not filename.startswith(_STDLIB)


def locate(filename: str, lineno: int) -> str:
    """Name a line the way the reader does: "Cell In[5], line 12" or "train.py, line 12".

    Code of a notebook cell has a made-up file name; IPython knows which cell it stands for.
    """
    if filename in MAGICS:
        return f"{MAGICS[filename]}, line {lineno + 1}"  # the first one is the magic's
    # Looked up, not imported: without IPython in the process there are no cells either.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        named = shell.compile.format_code_name(filename)
        if named is not None:
            return f"{named[0]} {named[1]}, line {lineno}"
    return f"{os.path.basename(filename)}, line {lineno}"


def source_line(filename: str, lineno: int) -> str:
    """Text of a line without its indentation; empty when the source is not to be had.

    To be called in the notebook's process: a rank has not got the text of the cells.
    """
    return linecache.getline(filename, lineno).strip()
