"""Models of real size on ranks without values: emulated steps, and this computer's time and memory.

    python -m benchmarks.real_sizes [--markdown] [--models 8B 8B-alike 1.3B 2x2x2 70B]

Prints, for each model, the emulated step and its tokens per second, the highest memory of a rank
(allocated, and reserved by torch's caching allocator), the real seconds of the run, and the memory
of this computer that a rank took. Then it prints the parameters, gradients and optimizer state that
a rank of FSDP2 holds after a step, divided by the hand count of 12 bytes for each parameter and
rank; and the microseconds of this computer for an operation that is counted and not computed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster
from ddpkit.rank.emulation.machine import current
from docs import llama

RANKS = 8
H100 = "device of 989 TFLOP/s, 2.4 TB/s, 96 GB, 4 us"
LINK = {"hosts of": 8, "inside": "450 GB/s, 3 us", "between": "50 GB/s, 5 us"}
BATCH, TOKENS = 2, 8192
OPERATIONS = 300


def fsdp2() -> dict[str, Any]:
    """Train the model of 8 billion parameters, sharded, with selective checkpointing."""
    sharded = partial(llama.sharded, "8B", "selective")
    return _told(sharded, BATCH, TOKENS)


def many() -> dict[str, Any]:
    """Train the model of 70 billion parameters for a step, sharded over 512 ranks."""
    return _told(partial(llama.sharded, "70B", "full"), 1, TOKENS, steps=1)


def meshed() -> dict[str, Any]:
    """Train the model of 1.3 billion parameters on replicas, stages and slices."""
    before = _resident()
    ends = llama.train_meshed("1.3B", 8, 2048, 4)
    return {"ends": ends, "grew": _resident() - before, **_reserved()}


def ddp() -> dict[str, Any]:
    """Train the model of 1.3 billion parameters, replicated."""
    return _told(lambda: llama.replicated("1.3B"), BATCH, 2048, autocast=True)


# name -> program, tokens of a rank in a step, number of ranks, number of running ranks
PROGRAMS: dict[str, tuple[Callable[[], dict[str, Any]], float, int, int]] = {
    "8B": (fsdp2, BATCH * TOKENS, RANKS, RANKS),
    "8B-alike": (fsdp2, BATCH * TOKENS, RANKS, 2),
    "1.3B": (ddp, BATCH * 2048, RANKS, RANKS),
    "2x2x2": (meshed, 8 * 2048 / 4, RANKS, RANKS),  # four ranks, a replica, share a batch
    "70B": (many, TOKENS, 512, RANKS),
}


def _told(make: Callable[[], Any], *batch: int, **how: Any) -> dict[str, Any]:
    import torch

    torch.randn(200, 200).softmax(0)  # sets up torch's fake tensors
    before = _resident()
    model = make()
    ends = llama.train(model, *batch, **how)
    own = sum(
        (each.to_local() if hasattr(each, "to_local") else each).numel()
        for each in model.parameters()
    )
    return {"ends": ends, "grew": _resident() - before, "parameters": own, **_reserved()}


def _reserved() -> dict[str, int]:
    rank = current()
    assert rank is not None
    assert rank.memory is not None
    return {"reserved": rank.memory.allocator().most_reserved}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def each_operation() -> dict[str, float]:
    """Return the real microseconds of operations that are counted and not computed."""
    import torch
    from torch.nn.functional import layer_norm

    rows, weight = torch.randn(2048, 4096), torch.randn(4096, 4096)
    found = {}
    for name, act in (
        ("add", lambda: rows + 1),
        ("add_", lambda: rows.add_(1)),
        ("mm", lambda: rows @ weight),
        ("layer_norm", lambda: layer_norm(rows, (4096,))),
        ("view", lambda: rows.view(-1)),
    ):
        act()
        begin = time.thread_time_ns()
        for _ in range(OPERATIONS):
            act()
        found[name] = (time.thread_time_ns() - begin) / OPERATIONS / 1000
    return found


def main() -> None:
    """Run the models that the command line names, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_sizes", description=__doc__)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--models", nargs="*", choices=PROGRAMS, default=[*PROGRAMS])
    asked = parser.parse_args()
    rows = []
    for name in asked.models:
        program, tokens, ranks, running = PROGRAMS[name]
        cluster = Cluster(ranks, machine=H100, link=LINK, values=False, alike=running)
        cluster.run(lambda: None)
        begin = time.perf_counter()
        run = cluster.run(program)
        seconds = time.perf_counter() - begin
        *_, before, end = run.results[0]["ends"]
        step, levels = (end - before) / 1e9, run.trace.memory[0]
        last = [level for level in levels if level.ns < end][-1].nbytes
        held = last[0] + last[2]  # parameters and optimizer state
        own = run.results[0].get("parameters")
        rows.append(
            [
                name,
                f"{running} of {ranks}",
                f"{step:.3f} s",
                f"{tokens / step:,.0f}",
                f"{max(level.total for level in levels) / 2**30:.1f} GiB",
                f"{run.results[0]['reserved'] / 2**30:.1f} GiB",
                f"{held / (12 * own):.6f}" if own else "",
                f"{seconds:.0f} s",
                f"{max(result['grew'] for result in run.results) / 1e6:.0f} MB",
            ]
        )
    print(machine())
    head = [
        *(
            "model",
            "ranks that run",
            "step",
            "tokens/s of a rank",
            "allocated",
            "reserved",
            "held ÷ 12 bytes",
        ),
        *("this computer: time", "memory of a rank"),
    ]
    print((as_markdown if asked.markdown else as_text)([head, *rows]))
    costs = Cluster(1, machine=H100, values=False).run(each_operation).results[0]
    print("\n" + ", ".join(f"{name} {us:.0f} us" for name, us in costs.items()))


if __name__ == "__main__":
    main()
