"""Ranks on GPUs: the costs of a run, its memory and its recording, and the errors of a model.

    python -m benchmarks.gpus [--markdown] [--machine mine.json]
    python -m benchmarks.gpus --stored     # predicted ÷ steps stored from an H100; needs no GPU

Prints the time of a run from its call to its result, with NCCL on one rank and with gloo on two
ranks that share a GPU; the time of a call of all_reduce, and of a training step of torch's DDP; and
the GPU's memory per rank. Times stand beside the times of torch.multiprocessing.spawn for the same
work. Prints also counted ÷ measured steps of models, on the machine of --machine or on a machine
that is measured first. The counted step is a step on an emulated cluster, which computes on the
CPU; the measured step is the least of many steps on the GPU. The models and sizes were chosen
before any of them was timed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._counted import layers, stepped
from benchmarks._report import Figure, Sample, as_markdown, as_text, machine, table
from ddpkit import Cluster
from ddpkit.cluster import devices
from ddpkit.measure import measure

SPAWN = "mp.spawn"
RUNS, CALLS, STEPS = 7, 500, 50
LARGE = "8 layers of 2048"
MODELS = ("lab 06's MLP", "transformer", "ResNet", LARGE)
DDP = "transformer in DDP"
# ms of a step, measured on the H100 of BENCHMARKS.md, "On a GPU", on 2026-11-22.
MEASURED = {MODELS[0]: 7.62, MODELS[1]: 8.67, MODELS[2]: 8.46, LARGE: 5.20, DDP: 10.5}
H100 = Path(__file__).with_name("h100_host.json")  # this H100, with its host's costs by phase
MB = 1 << 20


# Functions for a rank, which ddpkit or torch has started


def summed() -> float:
    """Return a sum over all ranks."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1, device="cuda")
    dist.all_reduce(x)
    return x.item()


def call_us() -> float:
    """Return the microseconds of a call of all_reduce on 4 kB, in a row of calls."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1000, device="cuda")
    return _each(lambda: dist.all_reduce(x), CALLS) * 1e6


def step_ms() -> float:
    """Return the milliseconds of a training step of a small transformer in torch's DDP."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    with torch.device("cuda"):
        from benchmarks._ddp import transformer

        net, x, y = transformer(), torch.randint(256, (16, 32)), torch.randint(10, (16,))
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return _each(step, STEPS) * 1e3


def _each(work: Callable[[], object], count: int) -> float:
    """Return the seconds of a call: the mean of `count` calls, up to the end of the GPU's work."""
    import torch

    for _ in range(5):
        work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def memory_in_use() -> int:
    """Return the bytes of the GPU that all processes use, while all ranks are alive."""
    import torch
    import torch.distributed as dist

    summed()
    dist.barrier()
    free, total = torch.cuda.mem_get_info()
    dist.barrier()
    return total - free


def least_ns(model: str) -> int:
    """Return the least ns of a model's training steps on the GPU."""
    import torch

    step = _step_of(model)
    took = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        took.append(time.perf_counter_ns() - begin)
    return min(took)


def counted_ns(model: str) -> int:
    """Return the ns of a model's training step on an emulated machine."""
    step = _step_of(model)
    step()
    begin = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - begin


def _step_of(model: str) -> Callable[[], None]:
    if model != LARGE:
        return stepped(model)
    import torch

    net, x = layers(2048, 8), torch.randn(1024, 2048)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def predicted_ns(model: str) -> int:
    """Return the ns of a step on a machine with a device, from an idle device to an idle device."""
    import torch

    step = _ddp_step() if model == DDP else _step_of(model)
    for _ in range(3):
        step()
    torch.cpu.synchronize()
    begin = time.perf_counter_ns()
    step()
    torch.cpu.synchronize()
    return time.perf_counter_ns() - begin


def _ddp_step() -> Callable[[], None]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks._ddp import transformer

    net, x, y = transformer(), torch.randint(256, (16, 32)), torch.randint(10, (16,))
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


# The figures


def stored(spec: str = str(H100)) -> list[Figure]:
    """Return predicted ÷ measured steps, for the measurements in `MEASURED`."""
    rows = []
    for model, ms in MEASURED.items():
        predicted = Cluster(1, machine=spec).run(predicted_ns, model).results[0] / 1e6
        note = f"{predicted:.2f} ÷ {ms:.2f} ms"
        rows.append(
            Figure(f"{model}: predicted ÷ measured", "", Sample((predicted / ms,)), note=note)
        )
    return rows


def spawned(job: Callable[[], Any], world_size: int = 1, backend: str = "nccl") -> Any:
    """Return the result of a job on rank 0 of processes that torch starts."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_plain, (world_size, backend, folder, job), nprocs=world_size)  # type: ignore[no-untyped-call]
        return json.loads((Path(folder) / "result").read_text("utf-8"))


def _plain(rank: int, world_size: int, backend: str, folder: str, job: Callable[[], Any]) -> None:
    """Join a group made by torch, run a job, and write rank 0's result."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend, f"file://{folder}/meeting", rank=rank, world_size=world_size)
    result = job()
    if rank == 0:
        (Path(folder) / "result").write_text(json.dumps(result), "utf-8")
    dist.destroy_process_group()


def seconds(work: Callable[[], object], count: int = RUNS) -> list[float]:
    """Return the seconds of each of several calls."""
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return took


def starts(ranks: int, backend: str) -> list[Figure]:
    """Return a row on runs with one small all_reduce: the first run, and later runs."""
    cluster = Cluster(ranks, device="cuda")
    if cluster.place.backend != backend:
        return [Figure(f"{ranks} ranks, {backend}", "", f"here it is {cluster.place}")]
    first, *later = seconds(lambda: cluster.run(summed), RUNS + 1)
    theirs = Sample.of(seconds(lambda: spawned(summed, ranks, backend), 3))
    title, note = f"{ranks} rank{'s' * (ranks > 1)}, {backend}: a run", f"the first {first:.2f} s"
    return [Figure(title, "s", Sample.of(later), {SPAWN: theirs}, note=note)]


def recording() -> list[Figure]:
    """Return rows on calls and steps on one rank, recorded and by torch alone, in turns."""
    rows = []
    for title, unit, job in (
        ("a call of all_reduce, NCCL", "us", call_us),
        ("a step of torch's DDP, NCCL", "ms", step_ms),
    ):
        ours, theirs = [], []
        for _ in range(3):
            ours.append(Cluster(1, device="cuda").run(job).results[0])
            theirs.append(spawned(job))
        rows.append(Figure(title, unit, Sample.of(ours), {SPAWN: Sample.of(theirs)}))
    return rows


def memory() -> list[Figure]:
    """Return rows on the megabytes of the GPU that a nearly idle rank takes."""
    used = {
        ranks: max(Cluster(ranks, device="cuda").run(memory_in_use).results) / MB
        for ranks in (1, 2, 4)
    }
    sharing = (used[4] - used[2]) / 2
    before = used[2] - 2 * sharing
    return [
        Figure("memory of a rank that shares a GPU, gloo", "MB", Sample((sharing,))),
        Figure("memory of a rank alone, NCCL", "MB", Sample((used[1] - before,))),
    ]


def models(spec: str) -> list[Figure]:
    """Return rows of counted ÷ measured steps."""
    rows = []
    for model in MODELS:
        counted = Cluster(1, machine=spec).run(counted_ns, model).results[0]
        measured = Cluster(1, device="cuda", record=False).run(least_ns, model).results[0]
        note = f"{counted / 1e6:.2f} ÷ {measured / 1e6:.2f} ms"
        title = f"{model}: counted ÷ measured"
        rows.append(Figure(title, "", Sample((counted / measured,)), note=note))
    return rows


def main() -> None:
    """Run the benchmark, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--markdown", action="store_true", help="as a table")
    parser.add_argument("--machine", help="a machine file; else this GPU is measured")
    parser.add_argument("--stored", action="store_true", help="against stored measurements")
    given = parser.parse_args()
    if given.stored:
        rows = stored(given.machine or str(H100))
        print((as_markdown if given.markdown else as_text)(table("Stored", rows, ())))
        return
    if not devices.has_gpus():
        parser.error("torch sees no GPU here (`ddpkit doctor` says why)")
    print(machine())
    rows = [*starts(1, "nccl"), *starts(2, "gloo"), *recording(), *memory()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.json"
        if given.machine is None:
            path.write_text(json.dumps(measure("cuda").as_json()), "utf-8")
        rows += models(given.machine or str(path))
    print((as_markdown if given.markdown else as_text)(table("On a GPU", rows, (SPAWN,))))


if __name__ == "__main__":
    main()
