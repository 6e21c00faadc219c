"""`ddpkit trace`: the table of a trace file, and exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.commands.beside import beside
from ddpkit.commands.numbers import csv_bytes, json_bytes, to_files, write
from ddpkit.commands.waiting import load, reading, said_if_long
from ddpkit.text import rank_list
from ddpkit.trace.base import MARKS
from ddpkit.view.timeline.model import MANY

if TYPE_CHECKING:
    from ddpkit.trace import Trace
EXPORTED = ".json", ".json.gz", ".et"


def _format(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Return ``path``. Raises BadParameter for a file name without the ending of a known format."""
    if path and path.suffix and not path.is_dir() and not path.name.endswith(EXPORTED):
        raise click.BadParameter(
            f"{path}: write FILE.json or FILE.json.gz for Perfetto, FILE.et for Chakra, or the "
            "name of a folder, without a dot, for HolisticTraceAnalysis",
            context,
            option,
        )
    return path


@click.command(epilog="Example: ddpkit trace run.json.gz --html run.html")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--step", type=int, help="Show only this training step, counted from 0; -1 is the last."
)
@click.option(
    "--export",
    metavar="FILE.json|FILE.et|DIR",
    callback=_format,
    type=click.Path(path_type=Path),
    help="Write Chrome JSON: all ranks into FILE.json (or .json.gz) for Perfetto, or one file per "
    "rank into DIR for HolisticTraceAnalysis. FILE.et writes Chakra execution traces for "
    "simulators, FILE.0.et and so on.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the timeline as one page; zoom and details work offline in any browser.",
)
@click.option(
    "--beside",
    "others",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Show the changes from the run in FILES to the run in FILE; may be repeated, for files of "
    "single ranks.",
)
@click.option(
    "--all", "every", is_flag=True, help=f"Show every rank, even if there are more than {MANY}."
)
@to_files
def trace(
    files: tuple[Path, ...],
    step: int | None,
    export: Path | None,
    html: Path | None,
    others: tuple[Path, ...],
    every: bool,
    as_json: Path | None,
    as_csv: Path | None,
) -> None:
    """Show each rank's time: compute, hidden communication, exposed communication, idle.

    FILES is a trace saved with `run.trace.save("run.json.gz")`, or the files of torch.profiler
    (`export_chrome_trace`), one file per rank of one run, or the folder with these files that
    `tensorboard_trace_handler` wrote.
    """
    from ddpkit.view import timeline_model

    if others:
        if export is not None:
            raise click.UsageError("--export takes one run: leave --beside out.")
        beside(files, others, step, html, as_json, as_csv, every=every)
        return
    with said_if_long() as doing:
        doing(reading(files))
        loaded = load(files)
        doing("Adding up the times of each rank.")
        text = timeline_model(loaded, step, short=not every).text
    click.echo(text)
    for line in _remarks(loaded, step):
        click.echo(line)
    if not every and len(loaded.recorded_ranks) > MANY:
        click.echo(
            f"The table has the worst, the median and the best of {len(loaded.recorded_ranks)} "
            "ranks, by exposed communication: see every rank with --all."
        )
    if html is not None:
        from ddpkit.view.explorer.page import page_bytes

        with said_if_long() as doing:
            doing(f"Writing {html}.")
            write(page_bytes(loaded, step), html)
    if as_json is not None or as_csv is not None:
        _write_numbers(loaded, step, as_json, as_csv)
    if export is None:
        return
    shown = loaded if step is None else loaded.step(step)
    with said_if_long() as doing:
        doing(f"Writing {export}.")
        written = shown.to_chakra(export) if export.suffix == ".et" else shown.to_chrome(export)
    for path in written:
        click.echo(f"wrote {path}")
    if not written:
        click.echo("Nothing was recorded, so nothing was exported.")
    elif written == [export]:
        click.echo("To look at it: https://ui.perfetto.dev, Open trace file.")


def _write_numbers(
    loaded: Trace, step: int | None, as_json: Path | None, as_csv: Path | None
) -> None:
    """Write the numbers of a trace or of `step`; CSV has a row for each recorded rank."""
    from ddpkit.commands.summary import all_numbers, by_rank

    if as_json is not None:
        write(json_bytes(all_numbers(loaded, step=step)), as_json)
    if as_csv is not None:
        rows = by_rank(loaded if step is None else loaded.step(step))
        for row in rows:
            row["memory_bytes"] = sum((row["memory_bytes"] or {}).values()) or None
            del row["collectives"]
            row.pop("copies", None)
        write(csv_bytes(rows), as_csv)


def _remarks(loaded: Trace, step: int | None) -> list[str]:
    """Return remarks about ranks, hosts and steps that the table does not show."""
    facts, remarks = loaded.facts, []
    if len(loaded.recorded_ranks) < loaded.world_size:
        remarks.append(
            f"The files hold {loaded.ranks_in_words}: {rank_list(loaded.recorded_ranks)}."
        )
    if hosts := facts.get("hosts"):
        remarks.append(
            f"Recorded on {hosts} hosts: times between hosts are as exact as the hosts' clocks."
        )
    if not loaded.steps and loaded.spans:
        remarks.append(f"No steps: {MARKS}.")
    if step is None and loaded.steps > 1:
        remarks.append(f"{loaded.steps} steps: see one with --step 0 to {loaded.steps - 1}.")
    return remarks
