"""`ddpkit slides 00`: a deck of slides for a lecture, made from the lesson."""

from __future__ import annotations

from pathlib import Path

import click

from ddpkit.files import CHECKOUT, write_whole
from ddpkit.text import count


@click.command(epilog="Example: ddpkit slides 00 -o slides")
@click.argument("names", nargs=-1)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("slides"),
    show_default=True,
    help="The folder of the decks.",
)
def slides(names: tuple[str, ...], folder: Path) -> None:
    """Make a deck of slides for each lab (of all labs, or of NAMES), with notes for the speaker.

    A deck is one HTML file for any browser, and needs no network. It is made from the lesson's
    text, the executed figures and the page for teachers, and shows no answer to an exercise.
    """
    from ddpkit.authoring import parse
    from ddpkit.authoring.notebook import load
    from ddpkit.authoring.pipeline import lessons_named
    from ddpkit.authoring.slides import make_deck, missing, to_page
    from ddpkit.authoring.stale import solution_path

    if not (CHECKOUT / "solutions").is_dir():
        raise click.ClickException(
            "`ddpkit slides` works in a checkout of ddpkit only: run the checkout's own ddpkit."
        )
    if lacks := missing():
        raise click.ClickException(lacks)
    lessons = [parse(path) for path in sorted((CHECKOUT / "solutions").glob("*.py"))]
    for lesson in lessons_named(lessons, names) if names else lessons:
        page = CHECKOUT / "docs" / "teaching" / f"{lesson.number}.md"
        teaching = page.read_text("utf-8") if page.exists() else ""
        deck = make_deck(lesson, load(solution_path(CHECKOUT, lesson)), teaching)
        path = folder / f"{lesson.stem}.html"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, to_page(deck).encode())
        except OSError as error:
            raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
        shown = sum("ddpkit" in cell["metadata"] for cell in deck["cells"])
        click.echo(f"wrote {path}: {count(shown, 'slide')}")
