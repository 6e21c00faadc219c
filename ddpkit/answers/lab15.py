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


from torch.nn.utils.rnn import pad_sequence


def padded(stretches):
    """Return letters and next letters: a row for each stretch, padded to the longest stretch."""
    letters = pad_sequence([each[:-1] for each in stretches], batch_first=True)
    following = pad_sequence([each[1:] for each in stretches], batch_first=True, padding_value=-100)
    return letters, following  # -100: no letter to guess


def bottleneck(trace) -> str:
    """Name the largest of the six times of the rank with the least exposed communication.

    The names are "compute", "straggler", "input", "idle", "latency" and "bandwidth". The usual
    compute time is the lower median of all ranks. Spans with the name "input" are not compute. The
    latency is the time of the shortest all_reduce, once for each all_reduce that the rank waited
    for; it is 0 if there is no all_reduce.
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


def train_fast(model, shard) -> None:
    """Train `model` in place on all ranks: take the steps of the given script in less time.

    model  a TextModel, the same on all ranks; `model(letters, following)` is the mean loss
    shard  this rank's text: a list of stretches for each step, each int64 (length + 1,)
    """
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    for stretches in shard:
        optimizer.zero_grad()
        every = sum(len(each) - 1 for each in stretches)
        rows = sorted(stretches, key=len)
        while rows:  # micro-batches of 64 letters: one long stretch, or two short ones
            micro = [rows.pop() for _ in range(1 if len(rows[-1]) > 33 else 2)]
            letters, following = padded(micro)
            (model(letters, following) * letters.numel() / every).backward()
        flat = flatten([p.grad for p in parameters]).bfloat16() / dist.get_world_size()
        dist.all_reduce(flat)
        for p, mean in zip(parameters, unflatten(flat, parameters)):
            p.grad.copy_(mean)
        optimizer.step()
