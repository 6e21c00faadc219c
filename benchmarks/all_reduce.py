"""Six ways to all-reduce, beside gloo's own all-reduce.

    python -m benchmarks.all_reduce [--quick] [--markdown] [--figure all_reduce.png]

Prints the bus bandwidth of lab 03's six answers, of a ring with segments in flight, and of torch's
`all_reduce` on gloo, in MB/s: S/time · 2(n-1)/n, as nccl-tests define "busbw". The rows are for raw
gloo, without the kit's recorder, and for an emulated link. On the link, measured time ÷ formula
stands beside the bandwidth, in brackets if the formula gives less than 20 ms: then the two cores of
a laptop limit the speed, not the link.

The time is the median over repetitions of (last rank done - first rank began). All variants of a
row take turns in one run. The six answers return a new tensor; the two other variants work in
place.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster
from ddpkit.simulate import ALL_REDUCE, bus_bandwidth, cost

RAW, LINK = "raw gloo", "1 Gbit/s, 200 us"
SEGMENTS, GLOO = "ring, segments", "gloo"
VARIANTS = (*ALL_REDUCE, SEGMENTS, GLOO)
WORLDS = (2, 4, 8)
SIZES = (4 * 1024, 64 * 1024, 1024**2, 16 * 1024**2, 64 * 1024**2)
QUICK_WORLDS, QUICK_SIZES = (2, 4), (64 * 1024, 1024**2, 16 * 1024**2)
LARGE = 16 * 1024**2
JUDGED_NS = 20_000_000  # a goal counts from this time on, by the formula
PAIRS = 30  # repetitions of the two rings that a goal compares
LONGEST_NS = 12_000_000_000  # a formula gives the times; slower variants are printed as "left out"
ROOM = 2 * 1024**3  # bytes on all ranks together: all_to_all keeps n tensors on each rank

Times = list[tuple[float, float]]  # begin and end of each repetition, in s


@dataclass(frozen=True)
class Row:
    """A network, a world size and a tensor's size, with the ns of each repetition by variant."""

    network: str
    n: int
    nbytes: int
    ns: dict[str, list[int]]

    def formula(self, variant: str) -> int:
        """Return the ns on the link, if adding takes no time."""
        return _formula(variant, self.n, self.nbytes)

    def median(self, variant: str) -> float:
        return statistics.median(self.ns[variant])

    def busbw(self, variant: str) -> float:
        """Return the bus bandwidth in MB/s."""
        ns = round(self.median(variant))
        return bus_bandwidth("all_reduce", self.n, self.nbytes, ns) / 1e6

    def cell(self, variant: str) -> str:
        if variant not in self.ns:
            return "left out"
        text = f"{self.busbw(variant):.3g}"
        if self.network == RAW:
            return text
        ratio = f"{self.median(variant) / self.formula(variant):.2f}"
        return f"{text} ×{ratio}" if self.formula(variant) >= JUDGED_NS else f"{text} ({ratio})"


def _formula(variant: str, n: int, nbytes: int) -> int:
    """Return the ns of a variant on the link; gloo's all_reduce is a ring."""
    return cost(variant if variant in ALL_REDUCE else "ring", n, nbytes, LINK)


def measure(variants: list[str], nbytes: int, repeats: int, raw: bool) -> dict[str, Times]:
    """Return begin and end of each repetition on a rank; a repetition is `_calls` calls."""
    import torch
    import torch.distributed as dist

    if raw:
        dist.group.WORLD = dist.new_group.__wrapped__(backend="gloo")  # without the recorder
    x, n, calls = torch.empty(nbytes // 4), dist.get_world_size(), _calls(nbytes, raw)
    times: dict[str, Times] = {variant: [] for variant in variants}
    for repetition in range(1 + repeats):  # the first repetition warms up
        for variant in variants:
            function = _function(variant)
            x.fill_(1.0)
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                total = function(x)
            end = time.perf_counter()
            got, due = (x, n**calls) if total is None else (total, n)
            if not bool((got == due).all()):
                raise ValueError(f"{variant} gives a wrong sum on {n} ranks, {nbytes} bytes")
            if repetition:
                times[variant].append((begin, end))
    return times


def _calls(nbytes: int, raw: bool) -> int:
    """Return the number of calls that move about a MB: a call of a few kB is too short to time."""
    return min(20, max(1, 1024**2 // nbytes)) if raw else 1


def _function(variant: str) -> Callable[[Any], Any]:
    import torch.distributed as dist

    from benchmarks._segments import ring_in_segments
    from ddpkit import answers

    if variant == SEGMENTS:
        return ring_in_segments
    return dist.all_reduce if variant == GLOO else answers.get(variant)


def run(network: str, n: int, nbytes: int, repeats: int, variants: Sequence[str] = VARIANTS) -> Row:
    """Measure, in turns, all variants that fit into time and memory."""
    if n * (n + 1) * nbytes > ROOM:
        variants = [each for each in variants if each != "all_to_all"]
    if network == LINK:
        variants = [each for each in variants if _formula(each, n, nbytes) <= LONGEST_NS]
    raw = network == RAW
    cluster = Cluster(n, link=None if raw else network)
    results = cluster.run(measure, list(variants), nbytes, repeats, raw).results
    ns = {}
    for variant in variants:
        ranks = zip(*(times[variant] for times in results), strict=True)
        seconds = [max(e for _, e in each) - min(b for b, _ in each) for each in ranks]
        ns[variant] = [round(each / _calls(nbytes, raw) * 1e9) for each in seconds]
    return Row(network, n, nbytes, ns)


def goals(rows: list[Row], alone: list[Row]) -> Iterator[str]:
    """Yield a sentence for each goal, with the reached value.

    ``alone`` are the rows of the two compared rings, measured once more without the six answers:
    the answers allocate a new tensor at each call, and beside them both rings scatter by a factor
    of 4.
    """
    for variant in ("ring", SEGMENTS):
        ratios = [
            row.median(variant) / row.formula(variant)
            for row in rows
            if row.network == LINK and variant in row.ns and row.formula(variant) >= JUDGED_NS
        ]
        if ratios:
            reached = "ok" if max(ratios) <= 1.05 else "MISSED"
            yield (
                f"{variant} on the link, measured ÷ formula: {min(ratios):.3f} to "
                f"{max(ratios):.3f}, median {statistics.median(ratios):.3f}, n={len(ratios)} "
                f"(goal ≤ 1.05 {reached})"
            )
    for row in alone:
        pairs = zip(row.ns[SEGMENTS], row.ns[GLOO], strict=True)
        low, middle, high = statistics.quantiles(ours / gloos for ours, gloos in pairs)
        yield (
            f"{SEGMENTS} ÷ gloo's all_reduce, in turns, {row.network}, {row.n} ranks, "
            f"{_size(row.nbytes)}: median {middle:.2f}, middle half {low:.2f} to {high:.2f}, "
            f"n={len(row.ns[GLOO])} (goal ≤ 1 {'ok' if middle <= 1 else 'MISSED'})"
        )


def draw(rows: list[Row], path: str) -> None:
    """Draw bus bandwidth over sizes: a row of panels for each network, a panel for each n."""
    from matplotlib import style
    from matplotlib.figure import Figure

    networks = list(dict.fromkeys(row.network for row in rows))
    worlds = list(dict.fromkeys(row.n for row in rows))
    with style.context("tableau-colorblind10"):
        figure = Figure(figsize=(4 * len(worlds), 3.2 * len(networks)), layout="constrained")
        panels = figure.subplots(
            len(networks), len(worlds), sharex=True, sharey="row", squeeze=False
        )
        for axes, network in zip(panels, networks, strict=True):
            for ax, n in zip(axes, worlds, strict=True):
                here = [row for row in rows if (row.network, row.n) == (network, n)]
                for variant, mark in zip(VARIANTS, "osvD^PX*", strict=True):
                    points = [(r.nbytes, r.busbw(variant)) for r in here if variant in r.ns]
                    if points:
                        ax.loglog(*zip(*points, strict=True), mark + "-", label=variant, ms=5, lw=1)
                ax.set(title=f"{network}, {n} ranks", xlabel="bytes", ylabel="busbw, MB/s")
        panels[0][0].legend(fontsize=8)
        figure.savefig(path, dpi=120)


def _size(nbytes: int) -> str:
    return f"{nbytes // 1024:,} kB"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer ranks, sizes, repetitions")
    parser.add_argument("--markdown", action="store_true", help="the table as for BENCHMARKS.md")
    parser.add_argument("--figure", default="tests/artifacts/all_reduce.png", metavar="PNG")
    options = parser.parse_args()
    worlds, sizes, repeats = (QUICK_WORLDS, QUICK_SIZES, 3) if options.quick else (WORLDS, SIZES, 7)
    print(machine())
    cases = [(net, n, nbytes) for net in (RAW, LINK) for n in worlds for nbytes in sizes]
    rows: list[Row] = []
    alone: list[Row] = []
    try:
        for network, n, nbytes in tqdm(cases, unit="case", leave=False, disable=None):
            few = network == LINK and nbytes >= LARGE
            rows.append(run(network, n, nbytes, 2 if few else repeats))
        alone = [run(RAW, 4, each, PAIRS, (SEGMENTS, GLOO)) for each in sizes if each >= LARGE]
    except KeyboardInterrupt:
        print(f"stopped after {len(rows)} of {len(cases)} cases")
    if not rows:
        return
    layout = as_markdown if options.markdown else as_text
    header = ["busbw in MB/s", "ranks", "S", *VARIANTS]
    table = [[row.network, str(row.n), _size(row.nbytes), *map(row.cell, VARIANTS)] for row in rows]
    print(layout([header, *table]), "", *goals(rows, alone), sep="\n")
    Path(options.figure).parent.mkdir(parents=True, exist_ok=True)
    draw(rows, options.figure)
    print(f"figure: {options.figure}")


if __name__ == "__main__":
    main()
