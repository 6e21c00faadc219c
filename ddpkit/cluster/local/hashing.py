"""Chooses the runs in which each rank gets its own interpreter and its own hash seed.

The problem. Python hashes text and bytes with a random secret, which each interpreter draws at its
start. Under torchrun each rank is an interpreter, so `hash("weights")` differs from rank to rank,
and a set of names is iterated in different orders. A program that relies on equal hashes or orders
fails under torchrun. Forked ranks all have the secret of their forkserver, so the mistake would
stay hidden.

A secret cannot be changed later, because every dictionary of the process depends on it. It would be
simpler to start each rank as a new interpreter, as torchrun does. But each interpreter then imports
torch itself, which takes 2 s of CPU time and 150 MB. Four forked ranks together start in 0.1 s.

So the launcher reads the code. A script gets separate interpreters if its file calls `hash` or
makes a set. A function of a notebook gets separate interpreters if its code, or code that is sent
with it, names the builtin `hash`: `protocol.ship` leaves a mark in the pickle. An attribute `hash`,
such as the setting of each field of a dataclass, does not count. The launcher does not read modules
that a script imports.

The seed depends on the seed of the run and on the rank, so a run can be repeated. PYTHONHASHSEED in
the user's environment takes precedence: then all ranks share its seed, as under torchrun.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ddpkit.protocol.assignment import Assignment
from ddpkit.protocol.ship import NAMES_HASH

VARIABLE = "PYTHONHASHSEED"
# functions with results that depend on the hash seed
HASHED = frozenset({"hash", "set", "frozenset"})


def needs_own_interpreters(call: bytes, file: str, is_script: bool) -> bool:
    """True if the code of a run can behave differently on ranks with different hash seeds.

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
    """True if code calls `hash`, or makes a set for more than a test such as `x in {"a", "b"}`."""
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
    """A block in which a newly started interpreter gets the hash seed of the rank `mine`."""
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = str((1000 * mine.seed + mine.rank + 1) % 2**32)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
