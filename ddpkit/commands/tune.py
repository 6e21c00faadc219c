"""`ddpkit tune`: the bucket caps worth measuring, in the order in which to measure them."""

from __future__ import annotations

from pathlib import Path

import click

from ddpkit.commands.numbers import write_rows
from ddpkit.commands.predict import BLIND, MOST_RANKS, described, loaded, of_a_trace, stated
from ddpkit.commands.waiting import said_if_long
from ddpkit.text import columns, count

LEFT_OUT = "left out (torch's default: 1, then 25)"
CLOSE = 1.02  # caps are equal for the model if their steps take at most CLOSE times the best step
SHOWN = 8


@click.command(epilog="Example: ddpkit tune run.json.gz -n 64")
@of_a_trace
@click.option("--ranks", "-n", type=click.IntRange(1, MOST_RANKS), help="Number of ranks.")
def tune(
    files: tuple[Path, ...],
    ranks: int | None,
    link: str | None,
    speed: float,
    as_json: Path | None,
    as_csv: Path | None,
) -> None:
    """Predict the best bucket_cap_mb for a recorded step.

    FILES is a trace, as for `ddpkit trace`, of a data-parallel run. The caps are printed in the
    order in which to measure them. Stop when a measured step is shorter than the next prediction:
    no other cap can win.
    """
    from ddpkit.simulate.step.buckets import DEFAULT_FIRST_MB
    from ddpkit.view.drawing.steps import caps

    model = loaded(files)
    for line in described(model, files):
        click.echo(line)
    changed = {"world_size": ranks, "link": link, "speed": speed}
    now = stated(model, **changed).step_ns
    tried = {f"{cap:g}": {"bucket_cap_mb": cap} for cap in sorted(caps(model.step))}
    tried[LEFT_OUT] = {"first_bucket_mb": DEFAULT_FIRST_MB}
    with said_if_long() as doing:
        doing(f"Computing the step with {count(len(tried), 'cap')}.")
        replays = {cap: stated(model, **caps, **changed) for cap, caps in tried.items()}
    found = sorted(replays, key=lambda cap: replays[cap].step_ns)
    best = replays[found[0]]
    rows = [["bucket_cap_mb", "buckets", "a step", "beside the best"]]
    for cap in found[:SHOWN] + [each for each in found[SHOWN:] if each == LEFT_OUT]:
        step_ns, number = replays[cap].step_ns, str(len(replays[cap].all_reduces))
        times = step_ns / best.step_ns if best.step_ns else 1.0
        rows.append([cap, number, f"{step_ns / 1e6:.4g} ms", f"× {times:.3f}"])
    click.echo("\n".join(columns(rows)))
    close = [cap for cap in tried if replays[cap].step_ns <= CLOSE * best.step_ns]
    numbers = [cap for cap in close if cap != LEFT_OUT]  # in rising order
    where = f"On {count(best.world_size, 'rank')}, {best.links}"
    click.echo(f"{where}: bucket_cap_mb{' ' if found[0] == LEFT_OUT else '='}{found[0]}.")
    if numbers:
        click.echo(
            f"From {numbers[0]} to {numbers[-1]} MB, a step is at most {CLOSE - 1:.0%} longer."
        )
    click.echo(f"With the recorded buckets, a step takes {now / 1e6:.4g} ms.")
    write_rows(
        as_json,
        as_csv,
        [
            {
                "bucket_cap_mb": None if cap == LEFT_OUT else tried[cap]["bucket_cap_mb"],
                "buckets": len(replays[cap].all_reduces),
                "step_seconds": replays[cap].step_ns / 1e9,
            }
            for cap in found
        ],
        ranks=best.world_size,
        recorded_buckets={"step_seconds": now / 1e9},
    )
    click.echo(BLIND)
