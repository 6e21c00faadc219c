"""`ddpkit report`: the results of a class in a chosen form."""

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
CODES = "codes.csv"  # file in the folder of results that links the standings' codes to people
OF_A_BOOK = ["gradebook", "canvas", "moodle"]
OF_RESULTS = ["json", "junit", "gradescope", "csv", "html"]
OF_A_CLASS = ["statistics", "standings", "written"]


@click.command(epilog="Example: ddpkit report results --format written")
@click.argument("folders", nargs=-1, required=True, type=FILE)
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
@click.option(
    "--keep",
    type=click.Choice(["best", "newest"]),
    default="best",
    show_default=True,
    help="The submission that counts if a student has several for a lab.",
)
@click.option(
    "--overrides",
    type=FILE,
    help="Your own points and comments.  [default: overrides.toml in FOLDERS]",
)
@click.option(
    "--anonymous", type=FILE, help="Print codes instead of names; this file maps codes to people."
)
@click.option(
    "--each", type=FILE, help="With html: write a page for each student into this folder."
)
def report(
    folders: tuple[Path, ...],
    form: str,
    output: Path | None,
    lab: str | None,
    roster: Path | None,
    keep: str,
    overrides: Path | None,
    anonymous: Path | None,
    each: Path | None,
) -> None:
    """Write the results of `ddpkit grade` in FOLDERS in another form.

    Several folders count as one: the parts of a class, or its labs.
    """
    from ddpkit.grade import division
    from ddpkit.grade.publish import people
    from ddpkit.grade.publish.gradebook import lab_of_result
    from ddpkit.grade.publish.roster import read_roster, without_roster

    if anonymous and form in ("canvas", "moodle"):
        raise GradeError(f"--format {form} needs names: leave --anonymous out.")
    results = _overridden(folders, overrides)
    if lab is not None:
        results = [result for result in results if lab_of_result(result) == lab.zfill(2)]
        if not results:
            there = ", ".join(map(str, folders))
            raise GradeError(f"{there} holds no results of lab {lab.zfill(2)}.")
    names = [result.name for result in results]
    who = read_roster(roster) if roster else without_roster(names)
    # standings are for a whole class, so the table has no names
    if form == "standings" and not anonymous:
        anonymous = folders[0] / CODES
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
    for sentence in division.missing(folders):
        click.echo(sentence, err=True)


def _overridden(folders: Sequence[Path], overrides: Path | None) -> list[Result]:
    """Return the results of the folders, with the teacher's own points and comments.

    Without `overrides`, the file overrides.toml of each folder is read.
    """
    from ddpkit.grade import store
    from ddpkit.grade.publish.overrides import FILE as USUAL
    from ddpkit.grade.publish.overrides import overridden, read_overrides

    usual = [folder / USUAL for folder in folders if (folder / USUAL).exists()]
    given = [overrides] if overrides else usual
    return overridden(
        store.load(*folders), [each for path in given for each in read_overrides(path)]
    )


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
