"""`ddpkit trace`: the table of a trace file, and its export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.commands.run import write_page

if TYPE_CHECKING:
    from ddpkit.trace import Trace


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--step", type=int, help="Show only this training step, counted from 0; -1 is the last."
)
@click.option(
    "--export",
    metavar="FILE.json|DIR",
    type=click.Path(path_type=Path),
    help="Write Chrome JSON: all ranks into FILE.json (or .json.gz) for Perfetto, or one file per "
    "rank into DIR for HolisticTraceAnalysis.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the timeline as one page; zoom and details work offline in any browser.",
)
def trace(
    files: tuple[Path, ...], step: int | None, export: Path | None, html: Path | None
) -> None:
    """Show each rank's time: compute, hidden communication, exposed communication, idle.

    FILES is a trace saved with `run.trace.save("run.json.gz")`, or the files of torch.profiler
    (`export_chrome_trace`), one file per rank of one run.
    """
    from ddpkit.trace import Trace
    from ddpkit.view import timeline_model

    loaded = Trace.load(*files)
    click.echo(timeline_model(loaded, step).text)
    for line in _remarks(loaded, step):
        click.echo(line)
    if html is not None:
        write_page(loaded, html, step)
    if export is None:
        return
    written = (loaded if step is None else loaded.step(step)).to_chrome(export)
    for path in written:
        click.echo(f"wrote {path}")
    if not written:
        click.echo("Nothing was recorded, so nothing was exported.")
    elif written == [export]:
        click.echo("To look at it: https://ui.perfetto.dev, Open trace file.")


def _remarks(loaded: Trace, step: int | None) -> list[str]:
    """Return remarks about ranks, hosts and steps that the table does not show."""
    facts, remarks = loaded.facts, []
    if present := facts.get("recorded_ranks"):
        remarks.append(f"The files hold these ranks of {loaded.world_size}: {present}.")
    if hosts := facts.get("hosts"):
        remarks.append(
            f"Recorded on {hosts} hosts: times between hosts are as exact as the hosts' clocks."
        )
    if step is None and loaded.steps > 1:
        remarks.append(f"{loaded.steps} steps: see one with --step 0 to {loaded.steps - 1}.")
    return remarks
