"""`ddpkit tune`: the bucket caps that are worth measuring, in the order in which to do so."""

from __future__ import annotations

from pathlib import Path

import click

from ddpkit.commands.predict import BLIND, described, loaded, of_a_trace, stated
from ddpkit.text import columns, count

DEFAULT_MB = 25  # torch's
CLOSE = 1.02  # of the best: as good, for what a model can tell
SHOWN = 8


@click.command()
@of_a_trace
@click.option("--ranks", "-n", type=click.IntRange(1, 65536), help="How many ranks.")
def tune(files: tuple[Path, ...], ranks: int | None, link: str | None, speed: float) -> None:
    """Say which bucket_cap_mb a recorded step wants.

    FILES is a trace, as for `ddpkit trace`, of a data-parallel run. The caps are printed in the
    order in which to measure them: once a measured step is shorter than the next prediction, no
    other cap can win.
    """
    from ddpkit.view.drawing.steps import caps

    model = loaded(files)
    for line in described(model, files):
        click.echo(line)
    changed = {"world_size": ranks, "link": link, "speed": speed}
    now = stated(model, **changed).step_ns
    tried = sorted({*caps(model.step), DEFAULT_MB})
    found = [(stated(model, bucket_cap_mb=cap, **changed), cap) for cap in tried]
    found.sort(key=lambda pair: pair[0].step_ns)
    best, cap = found[0]
    rows = [["bucket_cap_mb", "buckets", "a step", "beside the best"]]
    shown = found[:SHOWN] + [pair for pair in found[SHOWN:] if pair[1] == DEFAULT_MB]
    for replay, each in shown:
        said = f"{each:g}" + (" (torch's default)" if each == DEFAULT_MB else "")
        times = replay.step_ns / best.step_ns if best.step_ns else 1.0
        number = str(len(replay.all_reduces))
        rows.append([said, number, f"{replay.step_ns / 1e6:.4g} ms", f"× {times:.3f}"])
    click.echo("\n".join(columns(rows)))
    close = [each for replay, each in found if replay.step_ns <= CLOSE * best.step_ns]
    click.echo(
        f"On {count(best.world_size, 'rank')}, {best.links}: bucket_cap_mb={cap:g}. From "
        f"{min(close):g} to {max(close):g} MB all are within {CLOSE - 1:.0%} of it; with the "
        f"recorded buckets it is {now / 1e6:.4g} ms."
    )
    click.echo(BLIND)
