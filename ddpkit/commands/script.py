"""`ddpkit script 03`: a lab as a plain script, with your own answers.

The script has the lab's cells in order, texts as comments, for python and for torchrun. Its first
line holds a digest of the remaining lines: a script that differs from its digest has been changed,
and is not overwritten.
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ddpkit.authoring.notebook import load, text_of
from ddpkit.commands.lab import lab_named, labs_folder
from ddpkit.errors import LessonError
from ddpkit.exercises.keep import kept_path
from ddpkit.exercises.sources import FUTURE
from ddpkit.files import write_whole
from ddpkit.text import BLANK

PLACEHOLDER = f'raise NotImplementedError("{BLANK}'
MADE = re.compile(r"# Made by `ddpkit script` from \S+ \((?P<digest>\w+)\)\.\n")

YOURS = "your answers"
KEPT = "your answers, as kept by their checks"
MISSING = "not answered yet: cells that need them will fail"


@click.command(epilog="Example: ddpkit script 02 -o lab02.py")
@click.argument("number")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.  [default: the lab's name, in this folder]",
)
def script(number: str, output: Path | None) -> None:
    """Write lab NUMBER as a plain script with your answers in it, for python and for torchrun.

    The answers come from your notebook in this folder, my_labs/ or labs/. For a blank exercise, the
    last version that passed its check is used. A script that you have changed is not overwritten.
    """
    # a later folder takes precedence
    folders = (labs_folder(), Path("labs"), Path("my_labs"), Path())
    labs = {path.stem: path for folder in folders for path in folder.glob("[0-9][0-9]_*.ipynb")}
    notebook = lab_named(number, sorted(labs.values(), key=lambda path: path.stem))
    made, output = make_script(notebook), output or Path(f"{notebook.stem}.py")
    write_script(made, output)
    click.echo(f"wrote {output} from {notebook}")
    for what, names in made.answers.items():
        if names:
            click.echo(f"{what}: {', '.join(names)}")


@dataclass(frozen=True)
class Script:
    """A lab as a script, with the source of each exercise's answer."""

    text: str
    answers: dict[str, list[str]]  # names of exercises, by YOURS, KEPT and MISSING


def make_script(notebook: Path) -> Script:
    """Return the script of a lab's notebook; the notebook does not change.

    Raises LessonError if there is no notebook, or if its code does not make a script.
    """
    answers: dict[str, list[str]] = {YOURS: [], KEPT: [], MISSING: []}
    cells = []
    for cell in load(notebook)["cells"]:
        kind, source = str(cell.get("cell_type")), text_of(cell.get("source", ""))
        name = cell.get("metadata", {}).get("ddpkit", {}).get("exercise")
        if name:
            kept = _kept(name, notebook.parent) if PLACEHOLDER in source else None
            answers[YOURS if PLACEHOLDER not in source else KEPT if kept else MISSING].append(name)
            source = kept or source
        if kind in ("code", "markdown") and source.strip():
            cells.append((kind, _printing(source) if kind == "code" else source))
    body = ("\n" + FUTURE if answers[KEPT] else "") + "\n" + _percent(cells)
    _compile(body, notebook)
    made = f"# Made by `ddpkit script` from {notebook.name} ({_digest(body)}).\n"
    return Script(made + body, answers)


def write_script(script: Script, target: Path) -> None:
    """Write a script to `target`, a new file or a script that nobody has changed.

    Raises LessonError if another file is there, or if the file cannot be written.
    """
    try:
        if target.exists() and not _is_ours(target.read_text("utf-8")):
            raise LessonError(
                f"{target} has changed since `ddpkit script` wrote it, and is not overwritten. "
                "Name another file with -o, or move this file away."
            )
        write_whole(target, script.text.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise LessonError(f"{target} cannot be written: {error}.") from None


def _is_ours(text: str) -> bool:
    """True if a text is an unchanged script."""
    match = MADE.match(text)
    return match is not None and match["digest"] == _digest(text[match.end() :])


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _kept(name: str, folder: Path) -> str | None:
    """Return the last answer that passed its check in a folder's notebooks; None without one."""
    # if DDPKIT_PROGRESS is an absolute path, the kept answer is below that path, not in `folder`
    path = folder / kept_path(name)
    if not name.isidentifier():  # a stranger's notebook may hold any text here
        return None
    return path.read_text("utf-8").replace(FUTURE, "") if path.exists() else None


def _printing(source: str) -> str:
    """Return a cell that prints the value of its last line, as a notebook would show it."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic, or a mistake that `_compile` will report
        return source
    last = statements[-1] if statements else None
    if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call | ast.Constant):
        return source
    lines = source.encode().splitlines()
    first, end, column = last.lineno - 1, (last.end_lineno or 0) - 1, last.end_col_offset or 0
    if last.col_offset or lines[end][column:].strip().startswith(b";"):
        return source
    lines[end] = lines[end][:column] + b")" + lines[end][column:]
    lines[first] = b"print(" + lines[first]
    return b"\n".join(lines).decode()


def _percent(cells: list[tuple[str, str]]) -> str:
    """Return cells as a script of jupytext's percent format; magics become comments."""
    import jupytext
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    new: dict[str, Any] = {"code": new_code_cell, "markdown": new_markdown_cell}
    node = new_notebook(cells=[new[kind](source) for kind, source in cells])  # type: ignore[no-untyped-call]
    node.metadata["jupytext"] = {"notebook_metadata_filter": "-all"}
    fmt = {"extension": ".py", "format_name": "percent", "comment_magics": True}
    return str(jupytext.writes(node, fmt=fmt))


def _compile(body: str, notebook: Path) -> None:
    try:
        compile(body, str(notebook), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = body.splitlines()[(error.lineno or 1) - 1].strip()
        raise LessonError(
            f"{notebook.name} cannot become a script: {error.msg}, in the line `{line}`. "
            "Correct that cell, save the notebook, and try again."
        ) from None
