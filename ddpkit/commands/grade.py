"""`ddpkit grade`: grades the notebooks of a class, each in a sandbox."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.commands.waiting import said_if_long
from ddpkit.errors import GradeError
from ddpkit.files import CHECKOUT
from ddpkit.text import visible

if TYPE_CHECKING:
    from ddpkit.grade.found import HandedIn
    from ddpkit.grade.store import Result

FILE = click.Path(path_type=Path)
# exit statuses: the machine failed for a submission; all submissions were refused
FAILED, NONE_GRADED = 3, 4


@click.command(epilog="Example: ddpkit grade handed_in --out results")
@click.argument("submissions", nargs=-1, required=True, type=FILE)
@click.option("--out", required=True, type=FILE, help="Folder for the results.")
@click.option("--lab", help="Grade all notebooks as this lab (00, 01, ...).")
@click.option(
    "--open",
    "opened",
    help="The first open lab, as for `handout`; each notebook names its own lab.",
)
@click.option(
    "--secret",
    type=FILE,
    help="File with the course's secret.  [default: OUT/secret, made on the first run]",
)
@click.option(
    "--jobs", default=1, show_default=True, help="Number of submissions graded at a time."
)
@click.option(
    "--limit", default=60.0, show_default=True, help="Limit for one cell or one case, in seconds."
)
@click.option(
    "--resume", is_flag=True, help="Continue in OUT: skip the submissions with a result there."
)
@click.option("--only", help="Grade again the results with these statuses, as infra_error,timeout.")
@click.option("--part", help="Grade one part of the class: 3/8, the third of eight.")
@click.option(
    "--again", multiple=True, help="Grade again this submission, or the submissions in this folder."
)
def grade(
    submissions: tuple[Path, ...],
    out: Path,
    lab: str | None,
    opened: str | None,
    secret: Path | None,
    jobs: int,
    limit: float,
    resume: bool,
    only: str | None,
    part: str | None,
    again: tuple[str, ...],
) -> None:
    """Grade notebooks, in files and folders, each in its own sandbox.

    No sandbox holds an answer of an open lab. With --lab alone, that lab and later labs are open.
    With both options, --open names the first open lab.

    The exit status is 0 after a success, 1 if no submission could be graded, 3 if the machine
    failed for at least one submission (infra_error), and 4 if all submissions were refused.
    """
    from tqdm import tqdm

    from ddpkit.grade import classroom, division, store
    from ddpkit.grade.course import read_secret
    from ddpkit.grade.found import find
    from ddpkit.grade.sandbox import base, levels
    from ddpkit.grade.workplace import workplace

    number, first = _number(lab, "--lab"), _number(opened, "--open")
    if not number and not first:
        raise GradeError(
            "Name the first open lab with --lab or --open: no sandbox may hold the answers of open "
            "labs. --lab 03 grades every notebook as lab 03. --open 03 grades each notebook as the "
            "lab that the notebook names. Both options keep the answers of labs 03 and later out "
            "of the sandbox."
        )
    share = division.ClassShare.parse(part) if part else None
    if share and secret is None:
        raise GradeError("All parts of a class need the same secret: name its file with --secret.")
    if secret is not None and not secret.is_file():
        raise GradeError(
            f"There is no file {secret} with the secret. Without --secret, the command makes the "
            "file OUT/secret."
        )
    levels.require([*submissions, out, *([secret] if secret else [])])
    if (out / "results").exists() and not (resume or only or again):
        raise GradeError(
            f"The folder {out} already holds results: continue with --resume, or name another "
            "folder."
        )
    with said_if_long() as doing:
        doing("Looking for notebooks.")
        everybodys = find(submissions)
    notebooks = share.of_class(everybodys) if share else everybodys
    _make_folder(out)
    click.get_current_context().with_resource(store.alone(out))
    division.begin(out, share)
    if only or again:
        statuses = {status.strip() for status in (only or "").split(",")}
        notebooks = _once_more(notebooks, out, statuses, again)
        if not notebooks:
            click.echo(f"No result in {out} has the status {only}: nothing is graded again.")
            return
    limits = base.Limits.of_cells(limit)
    results: list[Result] = []
    _one_thread()
    # SystemExit, unlike a kill, lets temporary files be removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with (
        workplace() as work,
        tqdm(total=len(notebooks), unit="notebook", disable=None) as bar,
    ):
        room = classroom.Classroom(
            CHECKOUT, out, read_secret(secret or out / "secret"), work, limits, first or ""
        )

        def finished(result: Result) -> None:
            results.append(result)
            bar.update()

        classroom.grade_class(notebooks, room, number, jobs, finished)
    _print([*results, *classroom.withdraw(out, submissions, everybodys)], out)
    division.end(out, share)
    if code := _status([each.status for each in results]):
        click.get_current_context().exit(code)


def _number(given: str | None, option: str) -> str | None:
    """Return a lab's number as two digits; None without a number.

    For --open, the number after the last lab's number is valid too: then all labs are over. Raises
    GradeError if there is no such lab.
    """
    from ddpkit.exercises.exercise import exercises

    if given is None:
        return None
    known = sorted({one.lab for one in exercises().values()})
    over = f"{int(known[-1]) + 1:02}" if option == "--open" else known[-1]
    number = given.zfill(2)
    if number not in (*known, over):
        raise GradeError(
            f"There is no lab {visible(given)} for {option}: "
            f"use a number from {known[0]} to {over}."
        )
    return number


def _status(found: Sequence[str]) -> int:
    """Return the exit status for these statuses of submissions; see the help of `grade`."""
    if "infra_error" in found:
        return FAILED
    return NONE_GRADED if {*found} == {"refused"} else 0


def _once_more(
    notebooks: Sequence[HandedIn], out: Path, statuses: set[str], again: Sequence[str]
) -> list[HandedIn]:
    """Return the notebooks to grade again, by status or name, and remove their old results.

    Raises GradeError if no notebook has such a name.
    """
    from ddpkit.grade import store

    chosen = {
        notebook.name: notebook
        for notebook in notebooks
        if (earlier := store.saved(out, notebook.name)) is not None
        and {earlier.status, *(one.status for one in earlier.exercises)} & statuses
    }
    for name in again:
        named = [one for one in notebooks if f"{one.name}/".startswith(f"{name.strip('/')}/")]
        if not named:
            raise GradeError(f"--again {name}: there is no submission and no folder of this name.")
        chosen |= {notebook.name: notebook for notebook in named}
    for name in chosen:
        store.forget(out, name)
    return list(chosen.values())


def _make_folder(out: Path) -> None:
    """Make the folder of the results, readable for its owner only: results may tell answers."""
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise GradeError(
            f"The folder {out} cannot be made: {error.strerror}. Name another folder."
        ) from error


def _one_thread() -> None:
    """Limit torch to one thread: this process forks, and a fork of several threads may hang."""
    import torch

    torch.set_num_threads(1)


def _print(results: list[Result], out: Path) -> None:
    for result in sorted(results, key=lambda each: each.name):
        points = "" if result.earned is None else f"{result.earned:g} of {result.points:g}"
        why = "" if result.exercises else " ".join(result.notes)
        click.echo(f"{result.status:12} {points:10} {result.name}  {why}".rstrip())
    click.echo(f"Results are in {out}: see `ddpkit report {out} --format html`.")
