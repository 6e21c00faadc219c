"""`ddpkit report`: the results of a class in another form."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("folder", type=FILE)
@click.option(
    "--format",
    "form",
    required=True,
    type=click.Choice(["json", "junit", "gradescope", "csv", "html"]),
)
@click.option("-o", "--output", type=FILE, help="The file to write; without it, the terminal.")
def report(folder: Path, form: str, output: Path | None) -> None:
    """Write the results in FOLDER, as `ddpkit grade` left them, in another form."""
    from ddpkit.grade import store
    from ddpkit.grade.report import report as make

    text = make(store.load(folder), form)
    if output is None:
        with suppress(BrokenPipeError):
            click.echo(text, nl=False)
    else:
        store.write(output, text.rstrip("\n"))
        click.echo(f"wrote {output}")
