"""`ddpkit predict`: a recorded step on other ranks, links and caps, with the model's error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddpkit.text import columns, count, size

if TYPE_CHECKING:
    from ddpkit.simulate import Forecast

GOOD = 0.8  # efficiency below which more ranks are mostly wasted
RANKS = tuple(2**k for k in range(13))
BLIND = (
    "Not in the model: congestion, late ranks, a full memory. All three make a step "
    "longer, never shorter."
)


def of_a_trace(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `predict` and `tune` share."""
    for option in (
        click.option(
            "--speed",
            default=1.0,
            show_default=True,
            help="Speed of the ranks, relative to the recording; 2 is twice as fast.",
        ),
        click.option("--link", help='Another link, such as "100 Gbit/s, 10 us".'),
        click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@click.command()
@of_a_trace
@click.option(
    "--ranks",
    "-n",
    type=click.IntRange(1, 65536),
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
) -> None:
    """Predict a recorded step's time with other ranks, links, machines and bucket caps.

    FILES is a trace, as for `ddpkit trace`, of a data-parallel run with at least one step. Each
    rank keeps its batch size. Half of the recorded steps are held out to measure the model's error.
    """
    model = loaded(files)
    for line in described(model, files):
        click.echo(line)
    changed = {"link": link, "bucket_cap_mb": cap, "algorithm": algorithm}
    if machine is None:
        click.echo("\n".join(_curve(model, ranks, speed=speed, **changed)))
    else:
        least, most = _speeds(model, machine, recorded_on)
        click.echo(
            f"A trace does not hold single operations. On {machine} an operation is between "
            f"× {least:.3g} and × {most:.3g} as fast, depending on its limit: start, compute or "
            "memory."
        )
        for factor in (least, most):
            click.echo(f"If all operations are × {factor:.3g} as fast:")
            click.echo("\n".join(_curve(model, ranks, speed=speed * factor, **changed)))
    click.echo(BLIND)
    click.echo(f"To see it run: {_run(model, max(ranks, default=8), link, machine)}")


def _curve(model: Forecast, ranks: tuple[int, ...], **changed: Any) -> list[str]:
    """Return the step, speed-up and efficiency over ranks, as lines."""
    alone = stated(model, world_size=1, **changed).step_ns
    rows, good = [["ranks", "a step", "speed-up", "efficiency"]], 0
    for n in sorted({*(ranks or RANKS)}):
        step_ns = stated(model, world_size=n, **changed).step_ns
        share = alone / step_ns if step_ns else 1.0
        good = n if share >= GOOD else good
        rows.append([f"{n:,}", f"{step_ns / 1e6:.4g} ms", f"{n * share:,.3g}", f"{share:.0%}"])
    said = f"The efficiency is {GOOD:.0%} or more up to {count(good, 'rank')}."
    return [*columns(rows), *([] if ranks else [said])]


def _speeds(model: Forecast, machine: str, recorded_on: str | None) -> tuple[float, float]:
    """Return the factors by which another machine is faster, at least and at most."""
    from ddpkit.machine import MachineModel, speed_range

    was = recorded_on or model.machine
    if not was:
        raise click.ClickException(
            "the trace does not name the machine on which it was recorded. Name the machine with "
            "--recorded-on: its model, or the file that `ddpkit machine --measure -o mine.json` "
            "wrote"
        )
    try:
        return speed_range(MachineModel.parse(was), MachineModel.parse(machine))
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def loaded(files: tuple[Path, ...]) -> Forecast:
    """Return the model of the trace in these files."""
    from ddpkit.simulate import forecast
    from ddpkit.trace import Trace

    return forecast(Trace.load(*files))


def stated(model: Forecast, **changed: Any) -> Any:
    """Return the replay of a change. Raises ClickException if the change is refused."""
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
    if model.ratio is None:
        lines.append("Too short to hold steps out: the error of the model is not known.")
    else:
        lines.append(
            f"{count(len(model.ratios), 'step')} held out: measured ÷ predicted "
            f"{model.ratio:.2f} ({min(model.ratios):.2f} to {max(model.ratios):.2f})"
        )
    return lines


def _run(model: Forecast, ranks: int, link: str | None, machine: str | None) -> str:
    """Return the command for such a run in emulated time."""
    said = link or str(model.links.slowest)
    on = f' --machine "{machine or model.machine}"' if machine or model.machine else ""
    return f'ddpkit run -n {min(ranks, 16)} --link "{said}"{on} train.py'
