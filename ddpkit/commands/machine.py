"""`ddpkit machine`: list the named machines, or measure this computer."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ddpkit.machine import MachineModel, named
from ddpkit.text import under


@click.command()
@click.option("--measure", is_flag=True, help="Measure this computer's device.")
@click.option(
    "--device", default="cpu", show_default=True, help='The device to measure: "cpu" or "cuda".'
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("machine.json"),
    show_default=True,
    help="The file to write.",
)
def machine(measure: bool, device: str, output: Path) -> None:
    """List the machines that Cluster(machine=) knows, or measure this computer (--measure)."""
    if not measure:
        for each in named().values():
            click.echo(_described(each))
        click.echo(
            '"device of 400 TFLOP/s, 5 us": numbers of a GPU, which its host does not wait for.'
        )
        return
    from ddpkit.measure import measure as measured

    try:
        found = measured(device, lambda what: click.echo(f"measuring {what}"))
    except (RuntimeError, AssertionError) as error:  # torch's, of a device that is not there
        raise click.ClickException(f'cannot measure "{device}": {error}') from None
    try:
        output.write_text(json.dumps(found.as_json(), indent=1), "utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
    click.echo(_described(found))
    click.echo(f'Use it: Cluster(8, machine="{output}")')


def _described(each: MachineModel) -> str:
    """Return a machine's line: its name, its numbers and their source."""
    found = each.as_json()
    peaks = ", ".join(f"{dtype} {peak / 1e12:.4g}" for dtype, peak in each.flops.items())
    of_peak, of_bandwidth = each.efficiency
    rows = [
        ("flops", f"{peaks} TFLOP/s"),
        ("bandwidth", f"{each.bandwidth / 1e9:,.4g} GB/s"),
        ("memory", f"{(each.memory or 0) / 2**30:.3g} GiB"),
        ("launch_us", f"{each.launch_ns / 1e3:.3g} us{' of the host' if each.has_device else ''}"),
        ("bus", f"{each.bus / 1e9:.4g} GB/s to and from the host's pinned memory"),
        ("host", f"{each.host} for each rank"),
        ("efficiency", f"{of_peak:.2g} of the peak, {of_bandwidth:.2g} of the bandwidth"),
        ("kinds", f"own efficiencies of {', '.join(each.kinds)}"),
    ]
    lines = [f"{each.name}: {each.title}"]
    for name, said in rows:
        if name in found:
            lines.append(under(f"  {name:11}", f"{said} ({each.source.get(name, 'stated')})"))
    return "\n".join(lines)
