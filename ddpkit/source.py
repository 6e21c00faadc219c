"""The owner of a code file, and the name of a line for readers: "Cell In[5], line 12"."""

from __future__ import annotations

import functools
import glob
import linecache
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

# the file name that IPython gives the code of a cell with a magic -> the cell's name for the reader
MAGICS = {
    "<timed exec>": "%%time cell",
    "<timed eval>": "%%time cell",
    "<magic-timeit>": "%%timeit cell",
}
PACKAGE = os.path.join(os.path.dirname(__file__), "")
# frames above this file's frame only started the rank
RANK_MAIN = os.path.join(PACKAGE, "rank", "main.py")
_ANSWERS = os.path.join(PACKAGE, "answers", "")
# The file of a lab's check. In a sandbox, a check's code has a file of the grader's checkout.
_QUESTION = re.compile(r"[/\\]ddpkit[/\\]checks[/\\]lab\d\d[/\\]\w+\.py$")
_INSTALLED = tuple(f"{os.sep}{name}-packages{os.sep}" for name in ("site", "dist"))
_STDLIB = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_shipped: set[str] = set()  # made-up file names of code that was given to runs
_own: set[str] = set()  # beginnings of file names that count as the reader's in any folder


@functools.cache
def is_user_file(filename: str) -> bool:
    """True if code of this file is the reader's, neither a library's nor this package's own.

    The course's answers count as the reader's, because `carry` returns them in place of the
    reader's own.
    """
    if filename.startswith("<"):
        return filename in _shipped or filename.startswith(("<ipython", "<stdin", *MAGICS))
    if filename.startswith(tuple(_own)):
        return True
    if any(folder in filename for folder in _INSTALLED):
        return False
    if filename.startswith(_targets(tuple(sys.path))):
        return False
    if filename.startswith(PACKAGE):
        return filename.startswith(_ANSWERS)
    if is_question(filename):
        return False
    return not filename.startswith(_STDLIB)


def is_question(filename: str) -> bool:
    """Return True for the file of a lab's check, in the kit or in the grader's checkout."""
    return _QUESTION.search(filename) is not None


@functools.cache
def _targets(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return folders of Python's path into which pip has installed (by `--target`, for example).

    The usual folders of libraries are left out, because they may have a thousand files.
    """
    found = [os.path.join(folder, "") for folder in folders if folder]
    found = [each for each in found if not each.startswith(_STDLIB)]
    found = [each for each in found if not any(folder in each for folder in _INSTALLED)]
    return tuple(folder for folder in found if glob.glob(f"{glob.escape(folder)}*.dist-info"))


def add_user_code(*shipped: object) -> None:
    """Treat the code of a run's functions as the reader's own, under any made-up file name.

    Code from `exec` or `eval` has a made-up file name: "<string>", "<my code>". A file in a
    library's folder stays the library's, even if a run calls one of its functions.
    """
    names = {code.co_filename for value in shipped for code in _codes(value, set())}
    made_up = {name for name in names if name.startswith("<") and not name.startswith("<frozen")}
    if not made_up <= _shipped:
        _shipped.update(made_up)
        is_user_file.cache_clear()


def add_user_files(beginning: str) -> None:
    """Treat files with names that start with `beginning` as the reader's own, in any folder."""
    if beginning not in _own:
        _own.add(beginning)
        is_user_file.cache_clear()


def _codes(value: object, seen: set[int]) -> Iterator[types.CodeType]:
    """Yield the code of a function and of its inner functions, wrapped functions and closure."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, types.CodeType):
        yield value
        inner: list[Any] = list(value.co_consts)
    elif isinstance(value, types.FunctionType):
        inner = [value.__code__, *_held(value)]
    elif isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, types.MethodType):
        inner = [value.__func__]
    else:  # `value` may be a callable object
        called: Any = getattr(type(value), "__call__", None)  # noqa: B004  # the class has the code
        inner = [called] if isinstance(called, types.FunctionType) else []
    for each in inner:
        yield from _codes(each, seen)


def _held(function: types.FunctionType) -> Iterator[Any]:
    """Yield the functions that a function wraps, by `functools.wraps` or in its closure."""
    yield getattr(function, "__wrapped__", None)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable is not assigned yet
            continue


def locate(filename: str, lineno: int) -> str:
    """Return the name of a line for the reader: "Cell In[5], line 12" or "train.py, line 12".

    Code of a notebook cell has a made-up file name, and IPython knows the cell of each such name.
    """
    if filename in MAGICS:
        return f"{MAGICS[filename]}, line {lineno + 1}"  # the magic is the first line of the cell
    # Looked up, not imported: a process without IPython has no cells.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        named = shell.compile.format_code_name(filename)
        if named is not None:
            return f"{named[0]} {named[1]}, line {lineno}"
    return f"{os.path.basename(filename)}, line {lineno}"


def source_line(filename: str, lineno: int) -> str:
    """Return the text of a line without its indentation; "" if its source cannot be found.

    Call this in the notebook's process: a rank does not have the text of the cells.
    """
    return linecache.getline(filename, lineno).strip()
