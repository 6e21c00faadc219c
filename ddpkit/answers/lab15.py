# mypy: ignore-errors
"""Answers of lab 15 (capstone).

Generated from solutions/15_capstone.py by `make release`; do not edit.
"""

from statistics import median_low

import torch
import torch.distributed as dist

from ddpkit.answers import get

flatten = get("flatten")
unflatten = get("unflatten")


def even(text, size, generator):
    """Letters, and those that follow: `size` stretches of 32."""
    starts = torch.randint(len(text) - 33, (size,), generator=generator).tolist()
    stretches = torch.stack([text[start : start + 33] for start in starts])
    return stretches[:, :-1], stretches[:, 1:]


def bottleneck(trace) -> str:
    """The largest of a step's six times, those of the rank that waits least for its peers.

    "compute", "straggler", "input", "idle", "latency" or "bandwidth". What ranks usually compute is
    the lower median of all ranks. Spans called "input" are no compute. Latency: the time of the
    shortest all_reduce, for each all_reduce that the rank waited for; 0 where there is none.
    """
    parts = trace.breakdown()
    last = min(parts, key=lambda rank: parts[rank].exposed_ns)
    inputs = {
        rank: sum(one.duration_ns for one in trace.of(rank) if one.name == "input")
        for rank in parts
    }
    computes = {rank: parts[rank].compute_ns - inputs[rank] for rank in parts}
    usual = median_low(computes.values())
    operations = [one for one in trace.of(last) if one.name == "all_reduce"]
    shortest = min((one.end_ns - one.ready_ns for one in operations), default=0)
    latency = shortest * sum(one.blocked_ns is not None for one in operations)
    times = {
        "compute": usual,
        "straggler": computes[last] - usual,
        "input": inputs[last],
        "idle": parts[last].idle_ns,
        "latency": latency,
        "bandwidth": parts[last].exposed_ns - latency,
    }
    return max(times, key=times.get)


def train_fast(model, text) -> None:
    """Train `model` in place on all ranks, until its held-out loss is below the target.

    model  a TextModel, the same on all ranks; `model(letters, following)` is the mean loss
    text   the letters to train on, int64 (n,), the same on all ranks
    """
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(*even(text, 4, generator)).backward()
        flat = flatten([p.grad for p in parameters]).bfloat16() / dist.get_world_size()
        dist.all_reduce(flat)
        for p, mean in zip(parameters, unflatten(flat, parameters)):
            p.grad.copy_(mean)
        optimizer.step()
