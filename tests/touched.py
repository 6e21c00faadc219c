"""`make touched`: run the tests of the modules that a change touches.

A change is the difference from the commit BASE (by default HEAD), with the files that git does not
know yet. A test runs if its file imports a changed module, directly or through other modules, or if
its folder has the name of the changed module's room: tests/trace for ddpkit/trace. Changed cases of
a lab run the lab's answers and its solved lesson. A test that starts `ddpkit` as a program has no
import to follow, so only `make test` runs all affected tests.

    python -m tests.touched [BASE]      # prints pytest's arguments
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.project.source import ROOT

FOLDERS = ("ddpkit", "tests", "benchmarks")
ANSWERS = "tests/labs/test_wrong_and_right.py"
OF_A_LAB = re.compile(r"(?:ddpkit/checks/lab|tests/labs/lab|ddpkit/answers/lab|solutions/)(\d\d)")


def changed(base: str = "HEAD") -> list[str]:
    """Return the changed, new and deleted files, as paths from the root."""
    asked = (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"])
    return sorted({name for words in asked for name in _git(*words).splitlines()})


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def touched(names: Collection[str]) -> list[str]:
    """Return pytest's arguments for changed files: test files, lessons, and the answers of labs."""
    reached = _users({name for name in names if name in files()})
    labs = {found[1] for name in names if (found := OF_A_LAB.match(name))}
    tests = {name for name in reached if Path(name).name.startswith("test_")} - {ANSWERS}
    rooms = {parts[1] for name in names if len(parts := Path(name).parts) > 2}
    tests |= {name for name in _test_files() if Path(name).parts[1] in rooms - {"labs", "checks"}}
    if any(name.endswith(".md") for name in names):
        tests |= {name for name in _test_files() if name.startswith("tests/docs/")}
    lessons = {str(path) for lab in labs for path in Path("solutions").glob(f"{lab}_*.ipynb")}
    answers = [f"{ANSWERS}::{test}" for test in _of_labs(sorted(labs))]
    return [*sorted(tests), *sorted(lessons), *answers]


def _of_labs(labs: list[str]) -> Iterator[str]:
    """Yield the tests of the labs' answers, by name and parameter."""
    from tests.labs.answers import right_answers, wrong_answers

    for lab in labs:
        for each in wrong_answers(lab):
            yield f"test_a_wrong_answer_fails_with_its_hint[{lab}-{each}]"
        for exercise, answer in right_answers(lab):
            yield f"test_a_right_answer_of_another_make_passes[{lab}-{exercise}-{answer.__name__}]"
        yield f"test_every_hint_has_a_wrong_answer[{lab}]"


def _test_files() -> list[str]:
    return [name for name in files() if re.search(r"/test_\w+\.py$", name) and name != ANSWERS]


def _users(names: set[str]) -> set[str]:
    """Return the given files, and all files that import one of them, directly or not."""
    by_file: dict[str, set[str]] = {}
    for name in files():
        for needed in needs(name):
            by_file.setdefault(needed, set()).add(name)
    found, waiting = set[str](), set(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting |= by_file.get(name, set())
    return found


@functools.cache
def files() -> dict[str, str]:
    """Return all modules of the tree: the dotted name by the path from the root."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[path.relative_to(ROOT).as_posix()] = dotted
    return found


@functools.cache
def _paths() -> dict[str, str]:
    return {dotted: name for name, dotted in files().items()}


@functools.cache
def needs(name: str) -> frozenset[str]:
    """Return the files that a module imports.

    For a name of a package, the file of its definition.
    """
    tree = ast.parse((ROOT / name).read_text("utf-8"))
    asked = (each for node in ast.walk(tree) for each in _names(node))
    homes = (_home(module, thing) for module, thing in asked)
    return frozenset(home for home in homes if home) - {name}


def _names(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            yield from ((alias.name, "") for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from ((module, alias.name) for alias in names)


@functools.cache
def _home(module: str, thing: str) -> str:
    """Return the file of `thing` of a module; "" outside the tree."""
    paths = _paths()
    if f"{module}.{thing}" in paths:
        return paths[f"{module}.{thing}"]
    if module not in paths or not thing or not paths[module].endswith("__init__.py"):
        return paths.get(module, "")
    found = _names_with(thing, ast.parse((ROOT / paths[module]).read_text("utf-8")))
    homes = (_home(source, name) for source, name in found if source != module)
    return next(filter(None, homes), paths[module])


def _names_with(thing: str, tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the module and the name there of each import that binds `thing`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, a.name) for a in node.names if thing in (a.name, a.asname))


def main() -> None:
    """Print the arguments, one a line, or nothing if a change touches no test."""
    print("\n".join(touched(changed(*sys.argv[1:]))))


if __name__ == "__main__":
    main()
