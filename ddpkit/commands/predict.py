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
    "Not in the model: congestion, ranks that are late, memory that runs out. They make a step "
    "longer, never shorter."
)


def of_a_trace(command: Callable[..., Any]) -> Callable[..., Any]:
    """What `predict` and `tune` are both given."""
    for option in (
        click.option("--speed", default=1.0, show_default=True, help="How fast ranks compute."),
        click.option("--link", help='Another link, as "100 Gbit/s, 10 us".'),
        click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@click.command()
@of_a_trace
@click.option("--ranks", "-n", type=click.IntRange(1, 65536), multiple=True, help="How many ranks.")
@click.option("--machine", help='Another machine, as "A100"; see ddpkit machine.')
@click.option("--recorded-on", help="The machine of the recording, if the trace does not name it.")
@click.option("--cap", type=click.FloatRange(0), help="Another bucket_cap_mb.")
@click.option(
    "--algorithm",
    type=click.Choice(("ring", "butterfly", "cheapest")),
    default="ring",
    show_default=True,
    help="That of the all-reduces.",
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
    """Say how long a recorded step would take on other ranks, links and bucket caps.

    FILES is a trace, as for `ddpkit trace`, of a data-parallel run of at least one step. Each rank
    keeps its batch. Every other recorded step is held out, to say how well the model fits.
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
            f"A trace does not hold operations. On {machine} they gain between × {least:.3g} and "
            f"× {most:.3g}, by what holds them up: starting, computing or memory."
        )
        for factor in (least, most):
            click.echo(f"If all of them gain × {factor:.3g}:")
            click.echo("\n".join(_curve(model, ranks, speed=speed * factor, **changed)))
    click.echo(BLIND)
    click.echo(f"To see it run: {_run(model, max(ranks, default=8), link, machine)}")


def _curve(model: Forecast, ranks: tuple[int, ...], **changed: Any) -> list[str]:
    """The step, speed-up and efficiency over ranks, as lines."""
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
    """How many times as fast another machine is, at least and at most."""
    from ddpkit.machine import MachineModel, speed_range

    was = recorded_on or model.machine
    if not was:
        raise click.ClickException(
            "the trace does not say on which machine it was recorded: --recorded-on names it, for "
            "example as mine.json, which ddpkit machine --measure -o mine.json writes"
        )
    try:
        return speed_range(MachineModel.parse(was), MachineModel.parse(machine))
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def loaded(files: tuple[Path, ...]) -> Forecast:
    """The model of the trace in some files."""
    from ddpkit.simulate import forecast
    from ddpkit.trace import Trace

    return forecast(Trace.load(*files))


def stated(model: Forecast, **changed: Any) -> Any:
    """The replay of a change; what is wrong with it is said as a command says it."""
    try:
        return model.replay(**changed)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def described(model: Forecast, files: tuple[Path, ...]) -> list[str]:
    """What was recorded, and how well the model fits it."""
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
    """The command that makes such a run in emulated time."""
    said = link or str(model.links.slowest)
    on = f' --machine "{machine or model.machine}"' if machine or model.machine else ""
    return f'ddpkit run -n {min(ranks, 16)} --link "{said}"{on} train.py'
