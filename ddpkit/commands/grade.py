"""`ddpkit grade`: a class, each notebook in a sandbox."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.errors import GradeError
from ddpkit.files import CHECKOUT
from ddpkit.text import visible

if TYPE_CHECKING:
    from ddpkit.grade.found import HandedIn
    from ddpkit.grade.store import Result

FILE = click.Path(path_type=Path)
FAILED, NONE_GRADED = 3, 4  # exit statuses: the machine failed for some; all were refused


@click.command()
@click.argument("submissions", nargs=-1, required=True, type=FILE)
@click.option("--out", required=True, type=FILE, help="Folder of the results.")
@click.option("--lab", help="Grade all as this lab (00, 01, ...).")
@click.option(
    "--open",
    "opened",
    help="Or: each says which lab it is. The first lab that is still open, as for `handout`.",
)
@click.option("--secret", type=FILE, help="The course's secret; without it, OUT/secret is made.")
@click.option("--jobs", default=1, show_default=True, help="Submissions graded at a time.")
@click.option("--limit", default=60.0, show_default=True, help="Seconds for a cell or a case.")
@click.option("--resume", is_flag=True, help="Go on: what is graded in OUT is not graded again.")
@click.option("--only", help="Of what is graded, these statuses again: infra_error,timeout")
@click.option("--again", multiple=True, help="This submission, or this folder's, again.")
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
    again: tuple[str, ...],
) -> None:
    """Grade notebooks, in files and folders, each in a sandbox of its own.

    No sandbox holds an answer of a lab that is open. With --lab alone that lab is the first of
    them. With --lab and --open both hold.

    Ends with status 0; with 3 if the machine failed for one or more (infra_error), with 4 if all
    were refused, with 1 if nothing could be graded.
    """
    from tqdm import tqdm

    from ddpkit.grade import classroom, levels, sandbox
    from ddpkit.grade.course import read_secret
    from ddpkit.grade.found import find
    from ddpkit.grade.workplace import workplace

    number, first = _number(lab, "--lab"), _number(opened, "--open")
    if not number and not first:
        raise GradeError(
            "Say which answers no sandbox may hold: --lab 03 grades all as lab 03, and keeps back "
            "the answers of lab 03 and later ones; with --open 03 each notebook says which lab it "
            "is, and the same answers are kept back."
        )
    if secret is not None and not secret.is_file():
        raise GradeError(f"There is no secret {secret}. Without --secret, OUT/secret is made.")
    levels.require([*submissions, out, *([secret] if secret else [])])
    if (out / "results").exists() and not (resume or only or again):
        raise GradeError(f"{out} has results already: go on with --resume, or name another folder.")
    notebooks = find(submissions)
    if only or again:
        statuses = {status.strip() for status in (only or "").split(",")}
        notebooks = _once_more(notebooks, out, statuses, again)
        if not notebooks:
            click.echo(f"No result in {out} is {only}: nothing is graded again.")
            return
    _make_folder(out)
    limits = sandbox.Limits.of_cells(limit)
    results: list[Result] = []
    _one_thread()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and tidy up
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
    _print([*results, *classroom.withdraw(out, submissions, notebooks)], out)
    if code := _status([each.status for each in results]):
        click.get_current_context().exit(code)


def _number(given: str | None, option: str) -> str | None:
    """Return a lab's number as two digits; None if none was given.

    The number after the last lab's says that all labs are over. Raises GradeError.
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
    """What a script is told: see the command's own words."""
    if "infra_error" in found:
        return FAILED
    return NONE_GRADED if {*found} == {"refused"} else 0


def _once_more(
    notebooks: Sequence[HandedIn], out: Path, statuses: set[str], again: Sequence[str]
) -> list[HandedIn]:
    """The notebooks that have such a result or name; their results are removed.

    Raises GradeError: a name is nobody's.
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
            raise GradeError(f"There is no submission and no folder {name} to grade again.")
        chosen |= {notebook.name: notebook for notebook in named}
    for name in chosen:
        store.file_of(out, name).unlink(missing_ok=True)
    return list(chosen.values())


def _make_folder(out: Path) -> None:
    """Make the folder of the results: the teacher's alone, for feedback may tell secret inputs."""
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise GradeError(f"{out} cannot be made: {error.strerror}.") from error


def _one_thread() -> None:
    """Keep torch to one thread: a process with threads that forks, as this one does, may hang."""
    import torch

    torch.set_num_threads(1)


def _print(results: list[Result], out: Path) -> None:
    for result in sorted(results, key=lambda each: each.name):
        points = "" if result.earned is None else f"{result.earned:g} of {result.points:g}"
        why = "" if result.exercises else " ".join(result.notes)
        click.echo(f"{result.status:12} {points:10} {result.name}  {why}".rstrip())
    click.echo(f"Results are in {out}: see `ddpkit report {out} --format html`.")
