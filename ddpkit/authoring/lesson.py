"""A lesson as written: solutions/NN_name.py, parsed and checked.

The format is jupytext's py:percent. The `# %%` line of a cell gives the cell's role:

    # %% [markdown]               text
    # %%                          code
    # %% exercise="token_ring"    the answer: a function or class token_ring, with solution blocks
    # %% check="token_ring"       check(token_ring)
    # %% guess="token_ms"         token_ms = 4 * 33.8  # ms: the lab has dots for the number
    # %% tags=["answers"]         a helper that answers need: copied into the module of answers

The header, above the first cell, has the columns of the lesson's row in README's table of labs:

    # ---
    # jupyter:
    #   ddpkit:
    #     builds: a token ring; a deadlock, read and repaired
    #     minutes: 30
    #     needs: Python functions
    # ---

`parse` checks all rules that concern a single file, so that the modules for the products can rely
on a well-formed lesson. A broken rule raises a LessonError that begins with file:line.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from ddpkit.authoring import blocks
from ddpkit.errors import LessonError

FILE_NAME = re.compile(r"(?P<number>\d\d)_(?P<name>[a-z][a-z0-9_]*)")  # a lesson's stem
Kind = Literal["markdown", "code"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")  # a cell id holds 64 characters
_CELL = re.compile(r"# %%(?!%)")
SUMMARY = ("builds", "minutes", "needs")  # keys of the header = columns of README's table of labs


@dataclass(frozen=True)
class Cell:
    """A cell of a lesson; `source` is the text as written, with markers."""

    id: str
    kind: Kind
    source: str
    line: int  # the first line of `source` in the file
    exercise: str = ""
    check: str = ""
    guess: str = ""
    tags: tuple[str, ...] = ()
    blocks: tuple[blocks.Block, ...] = ()

    @property
    def solved(self) -> str:
        """The cell's source in the solution notebook and in the answers."""
        return blocks.solved(self.source, self.blocks)

    @property
    def blank(self) -> str:
        """The cell's source in the lab, without the answer."""
        if self.guess:
            return blocks.unguessed(self.source)
        return blocks.blank(self.source, self.blocks)

    @property
    def answer(self) -> list[str]:
        """The lines that the lab leaves out, without the markers."""
        return blocks.inside(self.source, self.blocks)

    @property
    def in_answers(self) -> bool:
        """True if the cell goes into ddpkit/answers."""
        return bool(self.exercise) or "answers" in self.tags


@dataclass(frozen=True)
class Lesson:
    """A well-formed lesson. `exercises` has the names of the exercises, in the order of the cells.

    `summary` has the header's values for README, in the order of SUMMARY. `summary` is empty if the
    header has no `ddpkit:` section.
    """

    path: Path
    number: str  # "00"
    name: str  # "ranks"
    title: str
    cells: tuple[Cell, ...]
    exercises: tuple[str, ...]
    summary: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The name of the lesson's files without suffix: "00_ranks"."""
        return f"{self.number}_{self.name}"

    @property
    def label(self) -> str:
        """The lesson in a message: "solutions/00_ranks.py"."""
        return label(self.path)

    def where(self, cell: Cell) -> str:
        """Return a cell's name in messages: "solutions/00_ranks.py:41: cell check-token_ring"."""
        return f"{self.label}:{cell.line}: cell {cell.id}"


def parse(path: Path) -> Lesson:
    """Read a lesson. Raises LessonError, with file:line first, for a malformed lesson."""
    match = FILE_NAME.fullmatch(path.stem)
    if path.suffix != ".py" or match is None:
        raise LessonError(f"{label(path)}: name the lesson's file NN_name.py, in lower case")
    return _parsed(path, match["number"], match["name"], path.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=32)  # jupytext takes a third of a second per lesson
def _parsed(path: Path, number: str, name: str, text: str) -> Lesson:
    _compile(path, 1, text, "the lesson")
    notebook = _notebook(path, text)
    cells = tuple(_cells(path, text, notebook.cells))
    exercises = tuple(cell.exercise for cell in cells if cell.exercise)
    _pair_checks(path, cells)
    title, summary = _title(path, cells), _summary(path, notebook.metadata)
    return Lesson(path, number, name, title, cells, exercises, summary)


def label(path: Path) -> str:
    """Return the last two parts of a path, which are the same in every clone."""
    return f"{path.parent.name}/{path.name}"


def _notebook(path: Path, text: str) -> Any:
    """Return the lesson as jupytext reads a file: the cells and the header's values."""
    import jupytext  # the import takes half a second, and no other module needs jupytext

    # A lesson has no magics, since magics are not Python. No comment of a lesson may become one.
    fmt = {"extension": ".py", "format_name": "percent", "comment_magics": False}
    try:
        return jupytext.reads(text, fmt=fmt)
    except Exception as error:  # YAML's errors and jupytext's errors share no base class
        what = str(error).partition("\n")[0]
        _fail(path, 1, f"the header is not valid YAML ({what}); a text with a colon needs quotes")


def _summary(path: Path, header: Any) -> tuple[str, ...]:
    """Return the header's values for README, in the order of SUMMARY; empty without values."""
    said = header.get("ddpkit")
    if said is None:
        return ()
    columns = tuple(str(said[key]) for key in SUMMARY) if _is_summary(said) else ()
    if not columns or any(re.search(r"[|\n]", text) for text in columns):
        _fail(
            path, 1, f"`ddpkit:` in the header needs {', '.join(SUMMARY)}, one line each, without |"
        )
    return columns


def _is_summary(said: Any) -> bool:
    return isinstance(said, dict) and set(said) == set(SUMMARY) and isinstance(said["minutes"], int)


def _cells(path: Path, text: str, nodes: Sequence[Any]) -> Iterator[Cell]:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _CELL.match(line)]
    if len(starts) != len(nodes):
        _fail(path, 1, "text before the first '# %%', or a '# %%' inside a string")
    ids: Counter[str] = Counter()
    for start, end, node in zip(starts, [*starts[1:], len(lines)], nodes, strict=True):
        first = next((n for n in range(start + 1, end) if lines[n].strip()), start)
        yield _cell(path, first + 1, node, ids)


def _cell(path: Path, line: int, node: Any, ids: Counter[str]) -> Cell:
    """Return the cell of a jupytext node, after all checks of a single cell.

    line  the number of the source's first line in the file
    ids   the number of earlier cells with each id, updated here
    """
    kind, source = str(node.cell_type), str(node.source).strip("\n")
    if kind not in ("markdown", "code"):
        _fail(path, line, f"a {kind} cell: a lesson has only text and code cells")
    if not source.strip():
        _fail(path, line, "an empty cell")
    roles = {key: node.metadata[key] for key in node.metadata if key != "lines_to_next_cell"}
    exercise, check, guess, tags = _roles(path, line, kind, roles)
    cell = Cell(
        id=_id(kind, source, {"answer": exercise, "check": check, "guess": guess}, ids),
        kind=cast(Kind, kind),
        source=source,
        line=line,
        exercise=exercise,
        check=check,
        guess=guess,
        tags=tags,
        blocks=_blocks(path, line, kind, source),
    )
    _prove(path, cell)
    return cell


def _roles(
    path: Path, line: int, kind: str, roles: dict[str, Any]
) -> tuple[str, str, str, tuple[str, ...]]:
    """Return the exercise, the check, the guess and the tags of a `# %%` line."""
    names = [roles.pop(role, "") for role in ("exercise", "check", "guess")]
    tags = roles.pop("tags", [])
    if roles:
        unknown = ", ".join(sorted(roles))
        _fail(path, line, f"unknown {unknown}: a cell has exercise, check, guess or tags")
    for name in names:
        if not isinstance(name, str) or (name and not _NAME.fullmatch(name)):
            _fail(
                path,
                line,
                f"{name!r} cannot name an exercise: use a Python name of at most 50 letters",
            )
    known = isinstance(tags, list) and all(
        isinstance(tag, str) and (tag == "answers" or tag.startswith("nbval-")) for tag in tags
    )
    if not known:
        _fail(path, line, f'tags {tags!r}: a cell may have ["answers"] and the tags of nbval')
    if sum(map(bool, names)) > 1 or (kind == "markdown" and (any(names) or tags)):
        _fail(path, line, "two roles in one cell: choose text, exercise, check or guess")
    return *names, tuple(tags)


def _id(kind: str, source: str, named: dict[str, str], ids: Counter[str]) -> str:
    """Return the id of a cell, for graders and diffs.

    The id does not change when a cell moves within the lesson.
    """
    base = "".join(f"{role}-{name}" for role, name in named.items() if name)
    if not base:
        digest = hashlib.sha256(source.encode()).hexdigest()[:8]
        base = f"{'md' if kind == 'markdown' else 'code'}-{digest}"
    ids[base] += 1
    return base if ids[base] == 1 else f"{base}-{ids[base]}"


def _blocks(path: Path, line: int, kind: str, source: str) -> tuple[blocks.Block, ...]:
    if kind == "markdown":
        for number, text in enumerate(source.splitlines(), line):
            if "# " + text.strip("# ") in (blocks.BEGIN, blocks.END):
                _fail(path, number, "a solution marker in a text cell")
        return ()
    try:
        return blocks.find_blocks(source)
    except blocks.BlockError as error:
        _fail(path, line + error.line, str(error))


def _prove(path: Path, cell: Cell) -> None:
    """Raise LessonError unless the cell, solved and blank, is valid Python and fits its role."""
    if cell.blocks and not cell.exercise:
        _fail(path, cell.line + cell.blocks[0].begin, "a solution outside an exercise cell")
    if cell.kind == "markdown":
        return
    _compile(path, cell.line, cell.source, f"cell {cell.id}")
    if cell.exercise:
        if not cell.blocks:
            _fail(path, cell.line, f"exercise {cell.exercise} has no '{blocks.BEGIN}'")
        _compile(path, cell.line, cell.blank, f"the lab's cell {cell.id}")
        if not _defines(cell.blank, cell.exercise):
            _fail(path, cell.line, f"the lab's cell {cell.id} defines no {cell.exercise}")
    if cell.check and not _checks(cell.source, cell.check):
        _fail(path, cell.line, f"cell {cell.id} does not call check({cell.check})")
    if cell.guess and blocks.guessed(cell.source) != cell.guess:
        _fail(path, cell.line, f"cell {cell.id} must be the one line {cell.guess} = NUMBER")


def _compile(path: Path, line: int, source: str, what: str) -> None:
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        _fail(path, line + (error.lineno or 1) - 1, f"{what} is not valid Python: {error.msg}")


def _defines(source: str, name: str) -> bool:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return any(isinstance(node, kinds) and node.name == name for node in ast.parse(source).body)


def _checks(source: str, name: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "check"
        and bool(node.args)
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == name
        for node in ast.walk(ast.parse(source))
    )


def _pair_checks(path: Path, cells: tuple[Cell, ...]) -> None:
    """Raise LessonError unless every exercise has one answer cell, and below it one check cell."""
    answered: set[str] = set()
    checked: set[str] = set()
    for cell in cells:
        name, seen = (cell.exercise, answered) if cell.exercise else (cell.check, checked)
        if not name:
            continue
        if name in seen:
            _fail(path, cell.line, f"two cells have the id {cell.id.removesuffix('-2')}")
        if cell.check and name not in answered:
            _fail(path, cell.line, f"cell {cell.id} checks an exercise that no cell above defines")
        seen.add(name)
    for cell in cells:
        if cell.exercise and cell.exercise not in checked:
            _fail(path, cell.line, f"exercise {cell.exercise} has no check cell")


def _title(path: Path, cells: tuple[Cell, ...]) -> str:
    first = cells[0].source.splitlines()[0] if cells and cells[0].kind == "markdown" else ""
    if not first.startswith("# "):
        _fail(path, 1, "a lesson begins with a text cell with the first line '# Its title'")
    return first.removeprefix("# ").strip()


def _fail(path: Path, line: int, message: str) -> NoReturn:
    raise LessonError(f"{label(path)}:{line}: {message}.")
