"""`ddpkit check LAB.ipynb`: run your own notebook from the top, and list the exercises that pass.

For self-study: the notebook runs with its owner's rights, and its verdicts are believed. With
`--as-graded` the grader's own code runs and judges the notebook.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ddpkit.errors import LessonError
from ddpkit.text import sign, visible

CHECK = re.compile(r"^\s*check\((\w+)\)", re.MULTILINE)


class _Notebook(click.Path):
    """An argument: a notebook's path, or the number of a lab in this folder or of `ddpkit lab`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from ddpkit.commands.lab import lab_named, labs

        if re.fullmatch(r"\d+(_\w+)?", str(value)) and not Path(value).exists():
            own = (sorted(Path(folder).glob("[0-9][0-9]_*.ipynb")) for folder in (".", "labs"))
            value = lab_named(str(value), next(filter(None, own), labs()))
        return Path(os.fsdecode(super().convert(value, param, ctx)))


@click.command(epilog="Example: ddpkit check 00 --as-graded")
@click.argument("notebook", type=_Notebook(exists=True, dir_okay=False))
@click.option(
    "--timeout", type=int, help="Limit for one cell in seconds: 300, or 60 with --as-graded."
)
@click.option("--as-graded", is_flag=True, help="Grade as `ddpkit grade` does, with other inputs.")
@click.option(
    "--seed", help="Text from which --as-graded draws its inputs; equal texts give equal inputs."
)
def check(notebook: Path, timeout: int | None, as_graded: bool, seed: str | None) -> None:
    """Run your NOTEBOOK from the top and list which of its exercises pass.

    NOTEBOOK is a file, or the number of a lab: 00 is the notebook 00_… in this folder, in the
    folder labs below it, or among the labs of `ddpkit lab`.
    The notebook runs with your rights, like Run All in Jupyter, and the file is not changed. Before
    you hand in, run the command once more with --as-graded.
    """
    if as_graded:
        _as_graded(notebook, timeout or 60, seed or secrets.token_hex(3))
        return
    results = run_checks(notebook, timeout or 300)
    width = max((len(result.name) for result in results), default=0)
    for result in results:
        click.echo(f"{sign(result.passed)} {result.name:{width}}  {result.says}")
    passed = sum(result.passed for result in results)
    click.echo(f"{passed} of {len(results)} exercises pass.")
    if passed < len(results):
        sys.exit(1)
    click.echo(f"Before you hand in: ddpkit check --as-graded {shlex.quote(str(notebook))}")


def _as_graded(notebook: Path, limit: float, seed: str) -> None:
    """Print the grader's verdict on a notebook; exit code 1 unless the notebook gets all points."""
    from ddpkit.commands.lab import labs_folder
    from ddpkit.exercises.keep import kept_path
    from ddpkit.grade.practice import practise

    kept = notebook.resolve().parent / kept_path("any").parent
    done = practise(notebook, labs_folder(), kept, seed, limit)
    width = max(len(one.name) for one in done.scores)
    for one in done.scores:
        passed = one.status == "pass"
        points = f"{one.earned:g} of {one.points:g}"
        click.echo(f"{sign(passed)} {one.name:{width}}  {points}{'' if passed else ', '}", nl=False)
        click.echo("" if passed else one.status)
        if not passed:
            click.echo("".join(f"    {visible(line)}\n" for line in one.feedback), nl=False)
    for note in done.notes:
        click.echo(visible(note))
    earned, points = (
        sum(getattr(one, name) for one in done.scores) for name in ("earned", "points")
    )
    graded = f"graded for lab {done.lab}, with inputs of --seed {seed}"
    click.echo(f"{earned:g} of {points:g} points as {graded}.")
    if earned < points:
        sys.exit(1)


@dataclass(frozen=True)
class Checked:
    """The verdict of a notebook's own check on one exercise."""

    name: str
    passed: bool
    says: str  # the last line that the check printed, or the reason why there is none


def run_checks(path: Path, timeout: int) -> list[Checked]:
    """Run the notebook `path` in a fresh kernel, in its own folder; the file is not changed.

    timeout  seconds that one cell may take; a longer cell is stopped, and later cells still run

    Raises LessonError if the file is not a notebook, or has no check cells.
    """
    notebook = _read(path)
    names = [name for cell in notebook.cells for name in CHECK.findall(_code(cell))]
    if not names:
        raise LessonError(f"{path} has no cell with check(...): name the notebook of a lab.")
    _execute(notebook, path.resolve().parent, timeout)
    cells = {name: cell for cell in notebook.cells for name in CHECK.findall(_code(cell))}
    return [_result(name, cells[name]) for name in dict.fromkeys(names)]


def _read(path: Path) -> Any:
    import nbformat

    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise LessonError(f"{path} is not a notebook: {error}") from error


def _code(cell: Any) -> str:
    return str(cell.source) if cell.cell_type == "code" else ""


def _execute(notebook: Any, folder: Path, timeout: int) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import DeadKernelError
    from tqdm import tqdm

    from ddpkit.authoring.kernel import private_connection

    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    with (
        tempfile.TemporaryDirectory(prefix="ddpkit-") as kept,
        tqdm(total=cells, unit="cell", leave=False, disable=None) as bar,
    ):
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=timeout,
            interrupt_on_timeout=True,
            allow_errors=True,
            config=private_connection(Path(kept)),
            resources={"metadata": {"path": str(folder)}},
            on_cell_executed=lambda **_: bar.update(),
        )
        # `_result` reports the death, because later cells have no outputs
        with suppress(DeadKernelError):
            # This run keeps its results in a temporary folder, because the student's own folder of
            # progress has the results of the student's runs only.
            client.execute(env={**os.environ, "DDPKIT_PROGRESS": kept})


def _result(name: str, cell: Any) -> Checked:
    text = "".join(
        output.text
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )
    lines = [line for line in text.splitlines() if line.startswith(f"{name}: ")]
    if lines:
        said = lines[-1].removeprefix(f"{name}: ")
        if said.startswith("passed"):
            return Checked(name, True, said.partition(". ")[0])
        return Checked(name, False, said)
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if errors:
        return Checked(name, False, f"{errors[-1].ename}: {errors[-1].evalue}".splitlines()[0])
    return Checked(name, False, "not run: the kernel had ended, or the cell took too long")
