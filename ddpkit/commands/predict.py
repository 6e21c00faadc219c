"""`ddpkit predict`: a recorded step on other ranks, links and caps, with the model's error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpkit.commands.numbers import Row, to_files, write_rows
from ddpkit.commands.waiting import load, reading, said_if_long
from ddpkit.text import columns, count, rank_list, size

if TYPE_CHECKING:
    from ddpkit.simulate import Forecast

GOOD = 0.8  # efficiency below which more ranks are mostly wasted
MOST_RANKS = 65536
RANKS = tuple(2**k for k in range(13))
BLIND = (
    "Not in the model: congestion, late ranks, a full memory. All three make a step "
    "longer, never shorter."
)


def _readable(context: click.Context, option: click.Parameter, link: str | None) -> str | None:
    """Return ``link``. Raises ClickException, before a trace is read, if the text is no link."""
    from ddpkit.link import Links

    try:
        if link is not None:
            Links.parse(link, MOST_RANKS)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    return link


def of_a_trace(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options of `predict` and `tune`."""
    for option in (
        click.option(
            "--speed",
            default=1.0,
            show_default=True,
            help="Speed of the ranks, relative to the recording; 2 is twice as fast.",
        ),
        click.option(
            "--link",
            callback=_readable,
            help='Another link, such as "100 Gbit/s, 10 us", or "hosts of 8 H100, InfiniBand 400 '
            'Gbit/s per GPU".',
        ),
        to_files,
        click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@click.command(epilog='Example: ddpkit predict run.json.gz -n 64 --link "100 Gbit/s, 10 us"')
@of_a_trace
@click.option(
    "--ranks",
    "-n",
    type=click.IntRange(1, MOST_RANKS),
    multiple=True,
    help="Number of ranks; may be repeated.",
)
@click.option(
    "--machine", help='Another machine, such as "A100"; `ddpkit machine` lists the names.'
)
@click.option("--recorded-on", help="The machine of the recording, if the trace does not name it.")
@click.option("--cap", type=click.FloatRange(0), help="Another bucket_cap_mb.")
@click.option(
    "--algorithm",
    type=click.Choice(("ring", "butterfly", "cheapest")),
    default="ring",
    show_default=True,
    help="Algorithm of the all-reduces.",
)
def predict(
    files: tuple[Path, ...],
    ranks: tuple[int, ...],
    machine: str | None,
    recorded_on: str | None,
    link: str | None,
    cap: float | None,
    speed: float,
    algorithm: str,
    as_json: Path | None,
    as_csv: Path | None,
) -> None:
    """Predict a recorded step's time with other ranks, links, machines and bucket caps.

    FILES is a trace, as for `ddpkit trace`, of a data-parallel run with at least one step. Each
    rank keeps its batch size. Half of the recorded steps are held out to measure the model's error.
    """
    model = loaded(files)
    for line in described(model, files):
        click.echo(line)
    changed = {"link": link, "bucket_cap_mb": cap, "algorithm": algorithm}
    factors = [1.0] if machine is None else _speeds(model, machine, recorded_on)
    if machine is not None:
        least, most = factors
        click.echo(
            f"A trace does not hold single operations. On {machine} an operation is between "
            f"× {least:.3g} and × {most:.3g} as fast, depending on its limit: start, compute or "
            "memory."
        )
    rows: list[Row] = []
    for factor in factors:
        if machine is not None:
            click.echo(f"If all operations are × {factor:.3g} as fast:")
        with said_if_long() as doing:
            doing(f"Computing the step on {count(max(ranks or RANKS), 'rank')} and fewer.")
            curve = _curve(model, ranks, speed=speed * factor, **changed)
        click.echo("\n".join(_table(curve, all_ranks=not ranks)))
        rows += curve
    write_rows(as_json, as_csv, rows, **_recorded(model))
    click.echo(BLIND)
    click.echo(f"To see it run: {_run(model, max(ranks, default=8), link, machine)}")


def _curve(model: Forecast, ranks: tuple[int, ...], *, speed: float, **changed: Any) -> list[Row]:
    """Return the step, speed-up and efficiency for each number of ranks."""
    alone, rows = stated(model, world_size=1, speed=speed, **changed).step_ns, list[Row]()
    for n in sorted({*(ranks or RANKS)}):
        step_ns = stated(model, world_size=n, speed=speed, **changed).step_ns
        share = alone / step_ns if step_ns else 1.0
        rows.append(
            {
                "ranks": n,
                "speed": speed,
                "step_seconds": step_ns / 1e9,
                "speed_up": n * share,
                "efficiency": share,
            }
        )
    return rows


def _table(curve: list[Row], *, all_ranks: bool) -> list[str]:
    """Return a curve as the lines of a table."""
    rows, good = [["ranks", "a step", "speed-up", "efficiency"]], 0
    for point in curve:
        n, seconds, faster, share = (
            float(point[name] or 0) for name in ("ranks", "step_seconds", "speed_up", "efficiency")
        )
        good = int(n) if share >= GOOD else good
        rows.append([f"{int(n):,}", f"{seconds * 1e3:.4g} ms", f"{faster:,.3g}", f"{share:.0%}"])
    said = f"The efficiency is {GOOD:.0%} or more up to {count(good, 'rank')}."
    return [*columns(rows), *([said] if all_ranks else [])]


def _recorded(model: Forecast) -> dict[str, object]:
    """Return the numbers of the recorded step, for a JSON file."""
    return {
        "recorded": {
            "ranks": model.world_size,
            "gradients": len(model.step.gradients),
            "bytes": model.step.bytes,
            "buckets": len(model.buckets),
        },
        "measured_by_predicted": model.ratio,
    }


def _speeds(model: Forecast, machine: str, recorded_on: str | None) -> tuple[float, float]:
    """Return the least and the largest factor by which operations are faster on a machine."""
    from ddpkit.machine import MachineModel, speed_range

    was = recorded_on or model.machine
    if not was:
        raise click.ClickException(
            "the trace does not name the machine on which it was recorded. Give --recorded-on "
            "the name of the machine, or the file that `ddpkit machine --measure -o mine.json` "
            "wrote"
        )
    try:
        return speed_range(MachineModel.parse(was), MachineModel.parse(machine))
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def loaded(files: tuple[Path, ...]) -> Forecast:
    """Return a forecast model, learnt from the trace in these files.

    Raises ClickException if the steps have calls that the model does not cover.
    """
    from ddpkit.simulate import forecast
    from ddpkit.simulate.step.parallelism import seen

    with said_if_long() as doing:
        doing(reading(files))
        trace = load(files)
        doing(f"Learning from {count(trace.steps, 'step')}.")
        found = seen(trace)
        if not found.is_data_parallel:
            raise click.ClickException(f"{files[0].name}: {found.refusal()}")
        return replace(forecast(trace), seen=found)


def stated(model: Forecast, **changed: Any) -> Any:
    """Return the replay of a changed step. Raises ClickException if the change is not valid."""
    try:
        return model.replay(**changed)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def described(model: Forecast, files: tuple[Path, ...]) -> list[str]:
    """Return lines about the recorded step and the error of the model."""
    step = model.step
    recorded = model.replay().step_ns
    lines = [
        f"{files[0].name}: {count(model.world_size, 'rank')}, {model.links}; "
        f"{count(len(step.gradients), 'gradient')} of {size(step.bytes)} in "
        f"{count(len(model.buckets), 'bucket')}; {recorded / 1e6:.4g} ms a step by the model"
    ]
    if model.seen is not None:
        lines.append(model.seen.stated())
    if model.recorded:
        lines.append(
            f"{len(model.recorded)} of {count(model.world_size, 'rank')} recorded "
            f"({rank_list(model.recorded)}): the others are taken to be copies. Waits for other "
            "ranks count as time of the link."
        )
    if model.ratio is None:
        lines.append("Too short to hold steps out: the error of the model is not known.")
    else:
        lines.append(
            f"{count(len(model.ratios), 'step')} held out: measured ÷ predicted "
            f"{model.ratio:.2f} ({min(model.ratios):.2f} to {max(model.ratios):.2f})"
        )
    return lines


def _run(model: Forecast, ranks: int, link: str | None, machine: str | None) -> str:
    """Return the `ddpkit run` command that makes the predicted run in emulated time."""
    said = link or str(model.links.slowest)
    on = f' --machine "{machine or model.machine}"' if machine or model.machine else ""
    return f'ddpkit run -n {min(ranks, 16)} --link "{said}"{on} train.py'
