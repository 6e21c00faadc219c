"""`ddpkit trace A --beside B`: the differences between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.commands.numbers import write, write_rows
from ddpkit.commands.waiting import load, reading, said_if_long

if TYPE_CHECKING:
    from ddpkit.trace import Trace


def beside(
    first: tuple[Path, ...],
    second: tuple[Path, ...],
    step: int | None,
    html: Path | None,
    as_json: Path | None,
    as_csv: Path | None,
    *,
    every: bool,
) -> None:
    """Print the differences from the first run to the second, and write the named files."""
    from ddpkit.view.drawing.changes import changes
    from ddpkit.view.timeline.model import MANY

    with said_if_long() as doing:
        doing(reading([*first, *second]))
        traces = load(first), load(second)
        doing("Comparing the ranks.")
        found = changes(traces, labels(first, second), step)
        text = found.text(every, MANY)
    click.echo(text)
    if not every and len(found.ranks) > MANY:
        click.echo(
            f"The table has the ranks with the most, the median and the least change of "
            f"{len(found.ranks)} ranks: see every rank with --all."
        )
    if html is not None:
        _write_page(traces, labels(first, second), step, html)
    write_rows(
        as_json,
        as_csv,
        found.numbers(),
        runs=[*found.labels],
        steps=[*found.steps],
        finding=found.finding(),
    )


def _write_page(
    traces: tuple[Trace, Trace], names: tuple[str, str], step: int | None, html: Path
) -> None:
    from ddpkit.view.explorer.page import page_bytes

    write(page_bytes(traces[0], step, traces[1], names), html)


def labels(first: tuple[Path, ...], second: tuple[Path, ...]) -> tuple[str, str]:
    """Return short names of the runs: their first files' names, or the paths if these are equal."""
    short = first[0].name, second[0].name
    return short if short[0] != short[1] else (str(first[0]), str(second[0]))
