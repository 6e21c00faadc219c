"""From a frame's file and line to what a reader calls it: "Cell In[5], line 12"."""

from __future__ import annotations

import linecache
import os
import sys

# What IPython calls the code of a cell under a magic that compiles it, and what a reader calls it.
MAGICS = {"<timed exec>": "%%time cell", "<magic-timeit>": "%%timeit cell"}


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
