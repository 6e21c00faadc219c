"""The sources that the tests of the project read: the tree, and the imports of each module."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpkit.authoring import Lesson

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ddpkit"


@dataclass(frozen=True)
class Import:
    """An import: module ``importer`` needs module ``imported``; ``where`` is its file:line."""

    importer: str
    imported: str
    where: str
    at_import: bool  # runs when the module is imported, not later inside a function
    for_types: bool = False  # never runs: only type checkers read the import


@functools.cache
def lessons() -> "tuple[Lesson, ...]":
    """Return all lessons in order; a process reads them once, which takes a third of a second."""
    from ddpkit.authoring import parse

    return tuple(map(parse, sources()))


def sources() -> list[Path]:
    """Return the files of all lessons, in order."""
    return sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))


def lesson_in(path: Path) -> "Lesson":
    """Return the lesson of a file.

    Tests with one case for each file are collected without lessons.
    """
    return lessons()[sources().index(path)]


@functools.cache
def modules() -> dict[str, Path]:
    """Return every module of the package: dotted name -> path."""
    return {_dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def all_imports() -> tuple[Import, ...]:
    """Return every import of the package, with imports for type checkers."""
    return tuple(found for name, path in modules().items() for found in _imports_of(name, path))


def imports() -> tuple[Import, ...]:
    """Return every import of the package that can run, without imports for type checkers."""
    return tuple(found for found in all_imports() if not found.for_types)


def tracked_files() -> list[Path]:
    """Return the files of the project: files that git tracks or would add.

    Without git: all files except bytecode and .venv.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [p for p in ROOT.rglob("*") if p.parts[len(ROOT.parts)] not in {".venv", ".git"}]
        paths = [path for path in paths if path.parent.name != "__pycache__"]
    return [path for path in paths if path.is_file()]


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(module: str, path: Path) -> Iterator[Import]:
    is_package = path.name == "__init__.py"
    for node, at_import, for_types in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        for imported in _targets(node, module, is_package):
            yield Import(module, imported, where, at_import, for_types)


def _statements(
    node: ast.AST, at_import: bool = True, for_types: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Yield (import statement, runs at import, is for types only) below `node`."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, at_import, for_types
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _statements(child, False, True)
        for child in node.orelse:
            yield from _statements(child, at_import, for_types)
    else:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _statements(child, at_import and not inside, for_types)


def _targets(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> list[str]:
    """Return the full names of imported modules: `from a import b` is a.b if this is a module, else
    a."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parents = module.split(".")
        keep = len(parents) - node.level + is_package
        base = ".".join([*parents[:keep], *filter(None, [base])])
    names = [f"{base}.{alias.name}" for alias in node.names]
    return sorted({name if name in modules() else base for name in names})
