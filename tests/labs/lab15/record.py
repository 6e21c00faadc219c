"""Records the traces that lab 15's check asks about; run once, by hand, from the checkout.

python -m tests.labs.lab15.record
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

import ddpkit.checks.lab15
from ddpkit import Cluster, PerRank
from ddpkit.capstone import MACHINE, TextTask
from tests.capstone.lesson import given

FOLDER = Path(ddpkit.checks.lab15.__file__).parent


def trained(model, shard, together):
    """Train two steps, with gradients in one all-reduce or many, and the loss in a small one."""
    parameters, lesson = list(model.parameters()), given()
    for stretches in shard[:2]:
        loss = model(*lesson.padded(stretches))
        loss.backward()
        if together:
            dist.all_reduce(torch.cat([p.grad.flatten() for p in parameters]))
        else:
            lesson.one_by_one(parameters)
        dist.all_reduce(loss.detach())


def record() -> None:
    """Write the files."""
    task = TextTask(1)
    for name, link, together, slow in (
        ("straggler", "1 Gbit/s, 50 us", True, {2: 0.25}),
        ("latency", "10 Gbit/s, 1 ms", False, None),
        ("bandwidth", "50 Mbit/s, 300 us", True, None),
    ):
        cluster = Cluster(4, machine=MACHINE, link=link, speed=slow or 1.0)
        run = cluster.run(trained, task.model(), PerRank(task.shards), together)
        run.trace.save(FOLDER / f"{name}.json.gz")


if __name__ == "__main__":
    record()
