"""`ddpkit report`: the results of a class in another form."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.errors import GradeError

if TYPE_CHECKING:
    from ddpkit.grade.publish.roster import Roster
    from ddpkit.grade.store import Result

FILE = click.Path(path_type=Path)
CODES = "codes.csv"  # in the folder of results: whose the codes of the standings are
OF_A_BOOK = ["gradebook", "canvas", "moodle"]
OF_RESULTS = ["json", "junit", "gradescope", "csv", "html"]
OF_A_CLASS = ["statistics", "standings", "written"]


@click.command()
@click.argument("folder", type=FILE)
@click.option(
    "--format",
    "form",
    required=True,
    type=click.Choice([*OF_RESULTS, *OF_A_BOOK, *OF_A_CLASS, "sources"]),
)
@click.option("-o", "--output", type=FILE, help="The file to write.  [default: the terminal]")
@click.option("--lab", help="Only the results of this lab (00, 01, ...).")
@click.option(
    "--roster", type=FILE, help="The students of the course: your own CSV file, or the LMS's."
)
@click.option("--keep", type=click.Choice(["best", "newest"]), default="best", show_default=True)
@click.option(
    "--overrides", type=FILE, help="Your own points and comments.  [default: FOLDER/overrides.toml]"
)
@click.option(
    "--anonymous", type=FILE, help="Print codes instead of names; this file maps codes to people."
)
@click.option(
    "--each", type=FILE, help="With html: write a page for each student into this folder."
)
def report(
    folder: Path,
    form: str,
    output: Path | None,
    lab: str | None,
    roster: Path | None,
    keep: str,
    overrides: Path | None,
    anonymous: Path | None,
    each: Path | None,
) -> None:
    """Write the results that `ddpkit grade` left in FOLDER in another form."""
    from ddpkit.grade.publish import people
    from ddpkit.grade.publish.gradebook import lab_of_result
    from ddpkit.grade.publish.roster import read_roster, without_roster

    if anonymous and form in ("canvas", "moodle"):
        raise GradeError(f"--format {form} needs names: leave --anonymous out.")
    results = _overridden(folder, overrides)
    if lab is not None:
        results = [result for result in results if lab_of_result(result) == lab.zfill(2)]
        if not results:
            raise GradeError(f"{folder} holds no results of lab {lab.zfill(2)}.")
    names = [result.name for result in results]
    who = read_roster(roster) if roster else without_roster(names)
    if form == "standings" and not anonymous:  # a table to hang up has no names
        anonymous = folder / CODES
    if anonymous:
        from ddpkit.grade.publish.anonymous import anonymous as unnamed

        results, who = unnamed(results, who, anonymous)
    if each is not None:
        if form != "html":
            raise GradeError("--each writes HTML pages: add --format html.")
        click.echo(f"wrote {len(people.pages(results, who, each))} pages into {each}")
    elif form == "sources":
        if output is None:
            raise GradeError("--format sources writes many files: name a folder for them with -o.")
        click.echo(f"wrote {people.sources(results, output)} answers into {output}")
    else:
        _write(_text(results, who, form, keep), output)
    strangers = [] if roster is None else [one.name for one in results if not who.owner(one.name)]
    if strangers:
        click.echo(f"Not in the roster: {', '.join(strangers)}", err=True)


def _overridden(folder: Path, overrides: Path | None) -> list[Result]:
    """The results, with the teacher's own points where there are any."""
    from ddpkit.grade import store
    from ddpkit.grade.publish.overrides import FILE as USUAL
    from ddpkit.grade.publish.overrides import overridden, read_overrides

    results = store.load(folder)
    if overrides is None and not (folder / USUAL).exists():
        return results
    return overridden(results, read_overrides(overrides or folder / USUAL))


def _text(results: Sequence[Result], roster: Roster, form: str, keep: str) -> str:
    from ddpkit.grade.publish.gradebook import gradebook, text_of
    from ddpkit.grade.publish.lms import canvas, moodle
    from ddpkit.grade.publish.people import written_page
    from ddpkit.grade.publish.standings import standings
    from ddpkit.grade.publish.statistics import statistics
    from ddpkit.grade.report import report as of_results

    match form:
        case "statistics":
            return statistics(results)
        case "standings":
            return standings(results)
        case "written":
            return written_page(results)
        case "gradebook":
            return text_of(gradebook(results, roster, keep))
        case "canvas":
            return canvas(gradebook(results, roster, keep), roster)
        case "moodle":
            return moodle(gradebook(results, roster, keep), roster)
    return of_results(results, form)


def _write(text: str, output: Path | None) -> None:
    from ddpkit.grade import store

    if output is None:
        with suppress(BrokenPipeError):
            click.echo(text, nl=False)
    else:
        store.write(output, text.rstrip("\n"))
        click.echo(f"wrote {output}")
