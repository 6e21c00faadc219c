"""Ranks with code that depends on hashes get an interpreter each, with a hash seed of its own.

The problem. Python hashes text and bytes with a secret that an interpreter draws when it begins.
Under torchrun each rank is an interpreter, so `hash("weights")` differs from rank to rank, and a
set of names is iterated in different orders. A program that relies on equal hashes or orders fails
there. A forked rank has the secret of the forkserver, which all ranks share, so the mistake would
stay hidden.

A secret cannot be changed later, because every dictionary of the process depends on it. It would be
simple to start all ranks as interpreters, as torchrun does. But each interpreter then imports torch
by itself, for 2 s of a core's time and 150 MB, where four forked ranks together take 0.1 s.

So the launcher reads the code. A script gets separate interpreters if its file calls `hash`, or
makes a set; a function of a notebook, if it names `hash`. Modules that a script imports are not
read.

The seed depends on the seed of the run and on the rank, so a run can be repeated. PYTHONHASHSEED in
the user's environment takes precedence: then all ranks share its seed, as under torchrun.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ddpkit.protocol.assignment import Assignment

VARIABLE = "PYTHONHASHSEED"
# functions with results that depend on the hash seed
HASHED = frozenset({"hash", "set", "frozenset"})
NAMES_HASH = b"\x8c\x04hash"  # in a pickle, the name `hash` in a function's code


def needs_own_interpreters(call: bytes, file: str, is_script: bool) -> bool:
    """True if the hash seed of a rank can change the behaviour of its code.

    call       the pickle of a function and its arguments
    file       the file of a script; "" if it is run as a module
    is_script  True if the call runs a script
    """
    if not is_script:
        return NAMES_HASH in call
    with suppress(OSError, SyntaxError, ValueError):  # a rank raises the error later
        if os.path.isfile(file):  # a pipe can be read only once
            with open(file, "rb") as stream:
                return _hashes(ast.parse(stream.read()))
    return False


def _hashes(code: ast.AST) -> bool:
    """True if the code hashes, or makes a set other than for a test such as `x in {"a", "b"}`."""
    nodes = list(ast.walk(code))
    compared = (node.comparators for node in nodes if isinstance(node, ast.Compare))
    tested = {id(each) for comparators in compared for each in comparators}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in HASHED:
                return True
        elif isinstance(node, ast.Set | ast.SetComp) and id(node) not in tested:
            return True
    return False


@contextmanager
def hash_seed(mine: Assignment) -> Iterator[None]:
    """A block in which an interpreter that is started gets the hash seed of a rank."""
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = str((1000 * mine.seed + mine.rank + 1) % 2**32)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
