"""`python -m benchmarks.scripts`: training programs under `ddpkit run`, as a table for docs/run.md.

Prints a row for each program: the exit, the real time of the run, the hidden share of the
communication, and the most memory of a rank. Each program follows an idiom of public training
scripts, and needs torch only.

    python -m benchmarks.scripts [NAME ...] [--machine A100] [--link "100 Gbit/s, 10 us"]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ddpkit.text import columns, size

LIMIT = 300  # seconds for a program
HEAD = """
import tempfile, torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = lambda: nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))).cuda()
batch = lambda: torch.randn(32, 256, device="cuda")

def train(model, *optimizers, loss=lambda model: model(batch()).square().mean(), steps=5):
    for _ in range(steps):
        loss(model).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
"""
PROGRAMS = {
    "DDP, AdamW": "model = DDP(net(), device_ids=[rank])\n"
    "train(model, torch.optim.AdamW(model.parameters()))",
    "FSDP2, mixed precision": """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = net()
half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in model: fully_shard(layer, mp_policy=half)
fully_shard(model, mp_policy=half)
train(model, torch.optim.AdamW(model.parameters()))""",
    "FSDP": """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(net())
train(model, torch.optim.AdamW(model.parameters()))""",
    "ZeroRedundancyOptimizer": """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(net(), device_ids=[rank])
train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))""",
    "tensor parallelism": """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
model = parallelize_module(net(), init_device_mesh("cuda", (size,)),
    {str(k): RowwiseParallel() if k % 2 else ColwiseParallel() for k in range(4)})
train(model, torch.optim.SGD(model.parameters(), lr=0.1))""",
    "pipeline, 1F1B": """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
part = nn.Linear(256, 256).cuda()
stage = PipelineStage(part, rank, size, torch.device("cuda", rank))
schedule = Schedule1F1B(stage, 4, loss_fn=F.mse_loss)
optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
for _ in range(5):
    if rank == 0: schedule.step(batch())
    elif rank == size - 1: schedule.step(target=batch())
    else: schedule.step()
    optimizer.step(); optimizer.zero_grad()""",
    "Join, uneven inputs": """
from torch.distributed.algorithms.join import Join
model = DDP(net(), device_ids=[rank])
with Join([model]):
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=4 + rank)""",
    "a GAN": """
maker, judge = (DDP(net(), device_ids=[rank]) for _ in range(2))
optimizers = [torch.optim.Adam(each.parameters()) for each in (judge, maker)]
for _ in range(5):
    made = maker(batch())
    judge(made.detach()).mean().backward(); optimizers[0].step(); optimizers[0].zero_grad()
    judge(made).mean().backward(); optimizers[1].step(); optimizers[1].zero_grad()""",
    "two optimizers": """
model = DDP(net(), device_ids=[rank])
weights, biases = ([p for p in model.parameters() if (p.ndim > 1) == matrix] for matrix in (1, 0))
train(model, torch.optim.SGD(weights, lr=0.02, momentum=0.95), torch.optim.AdamW(biases))""",
    "DCP, async_save in two queues": """
import torch.distributed.checkpoint as dcp
dist.destroy_process_group()
dist.init_process_group("cpu:gloo,cuda:nccl")
model = DDP(net(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
train(model, optimizer, steps=2)
saved = dcp.async_save({"model": model.module.state_dict()}, checkpoint_id=folder[0])
train(model, optimizer, steps=3)
saved.result()""",
    "DiLoCo": """
model = net()
inner = torch.optim.AdamW(model.parameters())
old = [p.detach().clone() for p in model.parameters()]
outer = torch.optim.SGD(old, lr=0.7, momentum=0.9, nesterov=True)
for _ in range(2):
    train(model, inner, steps=4)
    for before, now in zip(old, model.parameters()):
        before.grad = before - now.detach()
        dist.all_reduce(before.grad, dist.ReduceOp.AVG)
    outer.step()
    with torch.no_grad():
        for before, now in zip(old, model.parameters()): now.copy_(before)""",
    "SyncBatchNorm, GradScaler": """
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 4))
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(), device_ids=[rank])
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
for _ in range(5):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(16, 3, 8, 8, device="cuda")).square().mean()
    scaler.scale(loss).backward(); scaler.step(optimizer)
    scaler.update(); optimizer.zero_grad()""",
    "a CUDA graph": "graph = torch.cuda.CUDAGraph()",
}  # fmt: skip


def run(name: str, program: str, machine: str, link: str) -> list[str]:
    """Run a program on two ranks; return its row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        script, numbers = Path(folder, "train.py"), Path(folder, "numbers.json")
        script.write_text(f"{HEAD}\n{program}\n")
        begun = time.monotonic()
        command = [sys.executable, "-m", "ddpkit", "run", "-n", "2", "--machine", machine]
        command += ["--link", link, "--json", str(numbers), str(script)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return [name, f"not over after {LIMIT} s", "", "", ""]
        took = f"{time.monotonic() - begun:.0f} s"
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "Error: " in line]
            return [
                name,
                f"refused: {said[-1].partition('Error: ')[2]}" if said else "",
                took,
                "",
                "",
            ]
        found = json.loads(numbers.read_text())
    return [name, "runs", took, *_numbers(found)]


def _numbers(found: dict[str, Any]) -> list[str]:
    """Return the hidden share of communication, and the most memory of a rank."""
    ranks = found["run"]["by_rank"]
    hidden = sum(each.get("overlapped", 0) for each in ranks)
    whole = hidden + sum(each.get("exposed", 0) for each in ranks)
    most = max(sum(each["memory_bytes"].values()) for each in ranks)
    return [f"{hidden / whole:.0%}" if whole else "", size(most)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs, by the beginning of their names")
    parser.add_argument("--machine", default="A100")
    parser.add_argument("--link", default="100 Gbit/s, 10 us")
    given = parser.parse_args()
    rows = [["program", "outcome", "real time", "hidden", "memory"]]
    for name, program in PROGRAMS.items():
        if not given.names or any(name.startswith(each) for each in given.names):
            rows.append(run(name, program, given.machine, given.link))
            print(" · ".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(columns(rows)))


if __name__ == "__main__":
    main()
