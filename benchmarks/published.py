"""Predicted ÷ published training steps: the error of a modelled machine.

    python -m benchmarks.published [--rows FILE] [--only TEXT] [--fit]

Reads published steps, and predicts them on the kit's machine for the row's GPU. Prints a line for
each row, which ends in predicted ÷ published, and a summary for each GPU. The columns of FILE
decide how a row is predicted:

published_steps.csv          the operations of a micro-batch and of an optimizer step are counted on
                             a rank without values, and priced
published_megatron_2021.csv  formulas (benchmarks/_megatron.py): kernels, collectives, pipeline; a
published_nemo.csv           second or two

For the first file, the predicted time is the device's compute alone: no launches, no queue and no
network. The machines' shares are fitted to rows of this kind (docs/emulation.md, "Named machines"),
so for these rows the ratios show the quality of the fit, and for other rows the error of a
prediction. `--fit` fits the three shares again, on the rows that are read.

Nothing is fitted on the other two. Rows of models that are not counted are named and left out.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import _megatron
from benchmarks._kernels import Operations, seconds
from benchmarks._mpt import Sizes, operations
from ddpkit import Cluster
from ddpkit.machine import KindCost, MachineModel

ROWS = Path(__file__).with_name("published_steps.csv")
MACHINES = {"A100 40GB": "A100 40GB", "A100 80GB": "A100 80GB", "H100 80GB": "H100 SXM"}
SHARDS = 8  # counted ranks; the optimizer's bytes are scaled to the number of GPUs of the row
COUNTING = "1 TFLOP/s"  # any machine would do, because the operations are priced afterwards
PRODUCTS = [each / 100 for each in range(50, 90, 2)]  # the shares that a fit tries
ATTENTION = [each / 100 for each in range(25, 70, 5)]
BANDWIDTH = [each / 100 for each in range(30, 101, 5)]


@dataclass(frozen=True)
class Row:
    """A published step."""

    name: str
    gpu: str
    sizes: Sizes
    passes: int
    gpus: int
    seconds: float


def read(path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows that can be counted, and the names of all other rows with the reason."""
    found: list[Row] = []
    others: list[str] = []
    for row in table(path):
        name = (
            f"{row['model']}, {row['gpus']} x {row['gpu']}, {row['sequence']} tokens x "
            f"{row['micro_batch']} x {row['grad_accumulation']}"
        )
        if not row["model"].startswith("MPT"):
            others.append(f"{name}: its model is not here")
        elif "bf16" not in row["precision"]:
            others.append(f"{name}: {row['precision']} is not counted")
        elif row["gpu"] not in MACHINES:
            others.append(f"{name}: ddpkit has no machine for it")
        else:
            columns = ("d_model", "heads", "layers", "ffn", "vocab", "sequence", "micro_batch")
            sizes = Sizes(*(int(row[c]) for c in columns), row["checkpointing"] == "full")
            passes, gpus = int(row["grad_accumulation"]), int(row["gpus"])
            found.append(Row(name, row["gpu"], sizes, passes, gpus, float(row["s_per_step"])))
    return found, others


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file, without its comments."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def predicted(row: Row, counted: tuple[Operations, Operations], machine: MachineModel) -> float:
    """Return the seconds of a step: the micro-batches, and the optimizer on a GPU's part."""
    micro_batch, update = counted
    return row.passes * seconds(micro_batch, machine) + seconds(update, machine, SHARDS / row.gpus)


def fitted(
    machine: MachineModel,
    rows: Sequence[Row],
    known: dict[Sizes, tuple[Operations, Operations]],
) -> MachineModel:
    """Return a machine with the shares of the least mean error over the rows of one GPU."""

    def error(tried: MachineModel) -> float:
        return sum(abs(predicted(r, known[r.sizes], tried) / r.seconds - 1) for r in rows)

    tried = itertools.product(PRODUCTS, ATTENTION, BANDWIDTH)
    return min((with_shares(machine, *shares) for shares in tried), key=error)


def with_shares(
    machine: MachineModel, products: float, attention: float, bandwidth: float
) -> MachineModel:
    """Return the machine with other shares of its peak and its bandwidth."""
    kinds = {"attention": KindCost(machine.launch_ns, ((1.0, attention),))}
    return replace(machine, efficiency=(products, bandwidth), kinds=kinds)


def summary(ratios: Sequence[float]) -> str:
    """Return a line: the median, the rows near 1, and the extremes."""
    near = (
        f"{sum(abs(ratio - 1) <= limit for ratio in ratios) / len(ratios):.0%} within {limit:.0%}"
        for limit in (0.05, 0.1, 0.25)
    )
    return (
        f"{len(ratios)} rows: median {statistics.median(ratios):.3f}, {', '.join(near)}, "
        f"{min(ratios):.3f} to {max(ratios):.3f}"
    )


def counted(rows: Iterable[Row]) -> dict[Sizes, tuple[Operations, Operations]]:
    """Return the operations of each model and micro-batch of the rows."""
    cluster = Cluster(SHARDS, machine=COUNTING, values=False, alike=1)
    return {
        sizes: cluster.run(operations, sizes, SHARDS).results[0]
        for sizes in dict.fromkeys(row.sizes for row in rows)
    }


def main() -> None:
    """Predict the steps that the command line names, and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="published steps")
    parser.add_argument("--only", default="", help="rows whose line has this text")
    parser.add_argument("--fit", action="store_true", help="fit the three shares again")
    asked = parser.parse_args()
    rows, others = table(asked.rows), list[str]()
    if not rows:
        parser.error(f"{asked.rows} has no rows")
    if "parameters_1e9" in rows[0]:
        _by_formulas(_megatron.gpt(rows), asked.only)
    elif "release" in rows[0]:
        steps, others = _megatron.llama(rows)
        _by_formulas(steps, asked.only)
    else:
        others = _by_counting(asked)
    for other in others:
        print(f"left out: {other}")


def _by_formulas(steps: Sequence[_megatron.Step], only: str) -> None:
    steps = [step for step in steps if only in step.name]
    if not steps:
        print(f"No row has {only!r} in its name.")
        return
    for step in steps:
        print(_line(step.name, step.predicted, step.published))
    by_gpu: dict[str, list[float]] = defaultdict(list)
    for step in steps:
        by_gpu[step.gpu].append(step.predicted / step.published)
    for gpu, ratios in (by_gpu | {"all": list(itertools.chain(*by_gpu.values()))}).items():
        print(f"{gpu}: {summary(ratios)}")


def _by_counting(asked: argparse.Namespace) -> list[str]:
    rows, others = read(asked.rows)
    rows = [row for row in rows if asked.only in row.name]
    by_gpu: dict[str, list[Row]] = defaultdict(list)
    known: dict[Sizes, tuple[Operations, Operations]] = {}
    for row in rows:
        known |= counted([row]) if row.sizes not in known else {}
        by_gpu[row.gpu].append(row)
        machine = MachineModel.parse(MACHINES[row.gpu])
        step = predicted(row, known[row.sizes], machine)
        print(_line(row.name, step, row.seconds), flush=True)
    print(f"\nCompute alone, on {asked.rows}:")
    everything: list[float] = []
    for gpu, mine in by_gpu.items():
        machine = MachineModel.parse(MACHINES[gpu])
        ratios = [predicted(row, known[row.sizes], machine) / row.seconds for row in mine]
        everything += ratios
        print(f"{gpu} as {machine}, {_shares(machine)}: {summary(ratios)}")
        if asked.fit:
            machine = fitted(machine, mine, known)
            ratios = [predicted(row, known[row.sizes], machine) / row.seconds for row in mine]
            print(f"{gpu} fitted on these rows, {_shares(machine)}: {summary(ratios)}", flush=True)
    if everything:
        print(f"all: {summary(everything)}")
    return others


def _line(name: str, step: float, measured: float) -> str:
    return f"{name}: predicted {step:.3f} s, published {measured:.3f} s, {step / measured:.3f}"


def _shares(machine: MachineModel) -> str:
    products, bandwidth = machine.efficiency
    ((_, attention),) = machine.kinds["attention"].points
    return f"products {products:.2f}, attention {attention:.2f}, bandwidth {bandwidth:.2f}"


if __name__ == "__main__":
    main()
