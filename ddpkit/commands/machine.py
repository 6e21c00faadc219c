"""`ddpkit machine`: list the named machines, print one with sources, or measure this computer."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ddpkit.machine import MachineModel, named
from ddpkit.networks import inside_hosts
from ddpkit.text import columns, under

HEADS = ["", "16 bits", "8 bits (TFLOP/s)", "bandwidth", "memory", "links in a host"]


def _completed(context: click.Context, option: click.Parameter, typed: str) -> list[str]:
    """Return the names of machines that begin with ``typed``, for completion in a shell."""
    return [name for name in named() if name.lower().startswith(typed.lower())]


@click.command(epilog="Example: ddpkit machine H100")
@click.argument("name", nargs=-1, shell_complete=_completed)
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
def machine(name: tuple[str, ...], measure: bool, device: str, output: Path) -> None:
    """List the machines that Cluster(machine=) knows, print one, or measure this computer.

    NAME is a machine's name, its numbers, or a machine file.
    """
    if name and measure:
        raise click.UsageError("--measure measures this computer: leave the name out")
    if name:
        try:
            click.echo(_described(MachineModel.parse(" ".join(name))))
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        return
    if not measure:
        for line in columns([HEADS, *map(_row, named().values())]):
            click.echo(line.rstrip())
        click.echo("`ddpkit machine NAME` prints a machine's numbers, each with its source.")
        click.echo(
            '"device of 400 TFLOP/s, 5 us" describes a GPU; its host starts an operation in 5 us, '
            "and does not wait for the end."
        )
        return
    from ddpkit.measure import measure as measured

    try:
        found = measured(device, lambda what: click.echo(f"measuring {what}"))
    except (RuntimeError, AssertionError) as error:  # torch's errors for a missing device
        raise click.ClickException(f'cannot measure "{device}": {error}') from None
    try:
        output.write_text(json.dumps(found.as_json(), indent=1), "utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
    click.echo(_described(found))
    click.echo(f'Use it: Cluster(8, machine="{output}")')


def _row(each: MachineModel) -> list[str]:
    """Return a machine's row in the list of machines."""
    half = max(each.peak("bfloat16"), each.peak("float16"))
    peaks = [f"{peak / 1e12:,.4g}" for peak in (half, each.peak("float8_e4m3fn"))]
    memory = "unlimited" if each.memory is None else f"{each.memory / 2**30:.3g} GiB"
    network = inside_hosts().get(each.name)
    inside = f"{(network.bandwidth or 0) / 1e9:.4g} GB/s" if network else ""
    return [each.name, *peaks, f"{each.bandwidth / 1e9:,.4g} GB/s", memory, inside]


def _shares(each: MachineModel) -> str:
    """Return a text on the kinds of operations that have an efficiency of their own.

    The text has the efficiencies too if every kind has a single one.
    """
    if all(len(cost.points) == 1 for cost in each.kinds.values()):
        found = [(kind, cost.points[0][1]) for kind, cost in each.kinds.items()]
        return ", ".join(f"{kind} {share:.2g} of the peak" for kind, share in found)
    return f"own efficiencies of {', '.join(each.kinds)}"


def _phases(each: MachineModel) -> str:
    """Return the host's cost of an operation in each phase of a step."""
    costs = (f"{phase} {ns / 1e3:.3g} us" for phase, ns in each.phases.items())
    return f"{', '.join(costs)}: an operation on the host, Python and autograd included"


def _described(each: MachineModel) -> str:
    """Return a machine's lines: its name, its numbers and their source."""
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
        ("phases_us", _phases(each)),
        ("efficiency", f"{of_peak:.2g} of the peak, {of_bandwidth:.2g} of the bandwidth"),
        ("kinds", _shares(each)),
    ]
    lines = [f"{each.name}: {each.title}"]
    for name, said in rows:
        if name in found:
            lines.append(under(f"  {name:11}", f"{said} ({each.source.get(name, 'stated')})"))
    if network := inside_hosts().get(each.name):
        usual = f", {network.size} in a host" if network.size else ""
        said = (
            f"{network.title}: {(network.bandwidth or 0) / 1e9:.4g} GB/s reached by each"
            f"{usual}, {network.latency_us:g} us ({'; '.join(network.source.values())})"
        )
        lines.append(under("  network    ", said))
    return "\n".join(lines)
