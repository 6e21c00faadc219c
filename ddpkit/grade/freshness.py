"""A digest of the files and versions on which a score depends.

A submission is graded again if the digest has changed.

The modules of ddpkit are found by their imports, starting from the modules that make scores.
Imports at the top of a module and inside functions count. A module also counts if its name is in a
string, because pytest's plugin is named in a string. Imports for type checkers do not count. The
search reads only syntax trees, and imports no module.

The data files beside a module (the digits) count too, and so do the versions of Python and of the
libraries that these modules import.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ddpkit.files import PACKAGE

# the imports of this module lead to all judging modules, and to the modules inside the sandbox
SCORES = "ddpkit.grade.attempt"
PICTURES = "ddpkit.view."  # pictures of a lab's cells are not graded
NO_DATA = {".py", ".pyc", ".md", ".typed"}  # endings of files that no program reads as data


@dataclass(frozen=True)
class Needs:
    """The imports in the code of one module.

    imported   dotted names of modules, and of names in modules
    on_demand  modules that the module's `__getattr__` imports when a name is used
    """

    imported: frozenset[str] = frozenset()
    on_demand: frozenset[str] = frozenset()


def digest_of(lab: str, cells: Iterable[str]) -> str:
    """Return a hex digest of everything, except the notebook, on which a score of lab NN depends.

    ``cells`` are the sources of the lab's cells.
    """
    modules, libraries = needed_for(lab, cells)
    digest = hashlib.sha256(f"Python {platform.python_version()}\n".encode())
    for path in files_of(modules):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PACKAGE)} {len(content)}\n".encode() + content)
    for library in sorted(libraries):
        with suppress(metadata.PackageNotFoundError):
            digest.update(f"{library} {metadata.version(library)}\n".encode())
    return digest.hexdigest()


def needed_for(lab: str, cells: Iterable[str] = ()) -> tuple[set[str], set[str]]:
    """Return the modules of ddpkit on which a score of lab NN depends, and imported libraries.

    The checks of other labs do not count. The kit's answers of all earlier labs count, because
    `carry` may give a student any of these answers.
    """
    this = f"ddpkit.answers.lab{lab}"
    answers = {name for name in modules() if "ddpkit.answers.lab" <= name < this}
    asked = {name for cell in cells for name in _names_in(cell)}
    loaded = {name for name in asked if not f"{name}.".startswith(PICTURES)}
    return reached_from({SCORES, f"ddpkit.checks.lab{lab}.cases", *answers, *loaded})


def reached_from(roots: set[str]) -> tuple[set[str], set[str]]:
    """Return all modules of ddpkit that `roots` import, directly or not, and all libraries."""
    found: set[str] = set()
    foreign: set[str] = set()
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        package, _, last = name.rpartition(".")
        if name in found:
            continue
        if name in modules():
            found.add(name)
            waiting |= needs_of(name).imported
        elif package in modules() and last not in _names_bound(package):
            waiting |= needs_of(package).on_demand
        elif name.partition(".")[0] != "ddpkit":
            foreign.add(name.partition(".")[0])
        if package:  # a package is imported before its modules
            waiting.add(package)
    return found, foreign - sys.stdlib_module_names


def files_of(names: Iterable[str]) -> list[Path]:
    """Return the files of modules, and the data files in the same folders, in a fixed order."""
    paths = {modules()[name] for name in names}
    beside = {each for folder in {path.parent for path in paths} for each in folder.iterdir()}
    data = {each for each in beside if each.is_file() and each.suffix not in NO_DATA}
    return sorted(paths | {each for each in data if not each.name.startswith(".")})


@functools.cache
def modules() -> dict[str, Path]:
    """Return the path of every module of ddpkit, by dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("ddpkit", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def needs_of(name: str) -> Needs:
    """Return the imports of a module. Its file is read only once per process."""
    top = _tree(name).body
    lazy = [
        each for each in top if isinstance(each, ast.FunctionDef) and each.name == "__getattr__"
    ]
    usual = [each for each in top if each not in lazy]
    return Needs(frozenset(_named(usual)), frozenset(_named(lazy)))


@functools.cache
def _names_bound(name: str) -> frozenset[str]:
    """Return the names that a module's code binds at its top level."""
    bound: set[str] = set()
    for statement in _tree(name).body:
        match statement:
            case (
                ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own) | ast.ClassDef(name=own)
            ):
                bound.add(own)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {each.asname or each.name for each in names}
            case ast.Assign() | ast.AnnAssign():
                bound |= {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    return frozenset(bound)


@functools.cache
def _tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_bytes())


def _names_in(cell: str) -> set[str]:
    """Return the modules that a notebook's cell imports; names in `ddpkit` itself do not count."""
    try:
        named = _named(ast.parse(cell).body)
    except SyntaxError:  # the cell has a magic
        return set()
    return {name for name in named if name in modules() or name.count(".") > 1}


def _named(body: Iterable[ast.AST]) -> set[str]:
    """Return the names that import statements import: "a.b" for `from a import b`."""
    found: set[str] = set()
    for node in _runnable(body):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value in modules():
                found.add(node.value)
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def _runnable(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes that can run, even in functions, without the blocks for type checkers."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _is_for_types(node.test):
            waiting += node.orelse
        else:
            yield node
            waiting += ast.iter_child_nodes(node)


def _is_for_types(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))
