# mypy: ignore-errors
"""Answers of lab 10 (faults).

Generated from solutions/10_faults.py by `make release`; do not edit.
"""

import os
import zlib
from math import sqrt
from pathlib import Path
from statistics import median_low

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from ddpkit.answers import get
from ddpkit.errors import RankDied

average_flat = get("average_flat")


def mlp():
    torch.manual_seed(0)
    hidden = [torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()]
    return torch.nn.Sequential(*hidden, torch.nn.Linear(512, 10))


def straggler(trace) -> int | None:
    """The rank that holds up the others in the steps of `trace`; None if there is none.

    It is the rank whose own work takes longest, and at least 20 % longer than the median rank's.
    (Of two in the middle, the faster one's.) Compute beside communication is work too. All steps
    but the first count, together: the first one warms up.
    """
    compute = dict.fromkeys(trace.ranks, 0)
    for k in range(1, trace.steps):
        for rank, parts in trace.step(k).breakdown().items():
            compute[rank] += parts.compute_ns
    slowest = max(compute, key=compute.get)
    return slowest if compute[slowest] >= 1.2 * median_low(compute.values()) else None


def shares(batch_size: int, speeds: list[float]) -> list[int]:
    """How many of `batch_size` images each rank takes, so that all are done as early as possible.

    The shares add up to batch_size; a rank may get none. `speeds` are images per second, by rank.
    """
    taken = [0] * len(speeds)
    for _ in range(batch_size):
        first = min(range(len(speeds)), key=lambda rank: (taken[rank] + 1) / speeds[rank])
        taken[first] += 1
    return taken


def train_unequal(model, batches, lr: float) -> int:
    """Train until no rank has a batch left; returns how many steps that took, on every rank.

    `batches` yields this rank's (x, y): as many as it has, of any length, also 0, even on all
    ranks of a step: that step counts, and changes nothing. Ask for a batch
    when the step before is done. After each step all ranks have the model that one process makes
    of all images which the ranks have in that step: SGD, the cross entropy's mean over them. All
    begin with the same model. Besides the gradients, a step may send a few bytes.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr)
    batches, steps = iter(batches), 0
    while True:
        batch = next(batches, None)
        there = torch.tensor([0, 0] if batch is None else [1, len(batch[1])])
        dist.all_reduce(there)
        ranks, images = there.tolist()
        if not ranks:
            return steps
        optimizer.zero_grad()
        if batch is not None:
            loss = cross_entropy(model(batch[0]), batch[1], reduction="sum")
            (loss * dist.get_world_size() / images).backward()
        average_flat(model)  # a missing gradient counts as zeros
        optimizer.step()
        steps += 1


def save_checkpoint(path, step: int, model, optimizer) -> None:
    """Save a checkpoint: rank 0 writes it, and no rank returns before it is there.

    `path`, a str, holds what torch.save makes of a dict: "step", and the state_dict() of "model"
    and of "optimizer". Whatever happens meanwhile, `path` holds this checkpoint or, whole, the one
    before. Afterwards no second file is left, even if the disk was full; that error goes on.
    """
    if dist.get_rank() == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        try:
            torch.save(state, f"{path}.new")
            os.replace(f"{path}.new", path)
        finally:
            Path(f"{path}.new").unlink(missing_ok=True)  # a part, if the disk is full
    dist.barrier()


def load_checkpoint(path, model, optimizer) -> int:
    """Load what save_checkpoint has saved; returns the step to go on with, on every rank.

    Only rank 0 is sure to see the file. If it sees none, return 0 and leave all as it is. A damaged
    file is an error, and stays as it is.
    """
    found = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        found = [torch.load(path)]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["step"]


def checkpoint_every(save: float, mean_time_to_failure: float) -> float:
    """The seconds between two saves at which the least time is lost; both arguments are seconds."""
    return sqrt(2 * save * mean_time_to_failure)


def supervise(start, ranks: int, max_restarts: int, least: int = 1):
    """The run that succeeded, of several attempts; if none does, raises the last one's error.

    `start(ranks, attempt)` makes a run, whose `error` is None if all was well; attempts count from
    0. After a failure start again, at most max_restarts times: without the ranks that died, if it
    is a RankDied. If fewer than `least` are left, it was the last attempt.
    """
    for attempt in range(max_restarts + 1):
        run = start(ranks, attempt)
        if run.error is None:
            return run
        if isinstance(run.error, RankDied):
            ranks -= len(run.error.ranks)
        if ranks < least:
            break
    raise run.error


def drifted(module) -> list[str]:
    """Names of parameters and buffers that are not the same, bit for bit, on all ranks.

    Parameters first, then buffers, in their order; the same list on every rank. A rank hands in at
    most 64 bytes for each tensor, however large it is.
    """
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    as_bytes = [t.detach().cpu().reshape(-1).view(torch.uint8).numpy() for t in tensors.values()]
    mine = torch.tensor([zlib.crc32(each) for each in as_bytes])
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return [name for name, differs in zip(tensors, (low != high).tolist()) if differs]


def patient_a():
    """Cause, rank and mend of A: each rank gets the last row of the rank before it."""
    mend = {2: "sent = dist.isend(strip[-1], (rank + 1) % n)"}
    mend[3] = "dist.recv(above, (rank - 1) % n)\nsent.wait()"
    return "all send first", None, mend


def patient_b():
    """Cause, rank and mend of B: rank 0 notes the mean loss of each whole batch."""
    note = "mean = loss.detach() / n\ndist.all_reduce(mean)\nif rank == 0:"
    return "one rank alone", 0, {8: note, 9: "", 10: ""}


def patient_c():
    """Cause, rank and mend of C: the training of one process."""
    return "another order", 2, {6: 'for name in sorted(settings["average"]):'}


def patient_d():
    """Cause, rank and mend of D: each rank has the predictions of each batch."""
    mend = {4: "everyone = [None] * n", 5: "dist.all_gather_object(everyone, mine)"}
    return "other sizes", 2, mend


def patient_e():
    """Cause, rank and mend of E: the broken batch counts for nothing, all others as before."""
    return "left out", 2, {5: "loss = sum(0 * p.sum() for p in model.parameters())"}


def patient_f():
    """Cause, rank and mend of F: rank 0 notes the loss of each whole batch after its step."""
    return "one rank alone", 0, {9: "log.append(mse(model(x), y).item())"}


def patient_g():
    """Cause, rank and mend of G: the ranks share each batch."""
    return "same data", None, {3: "part = order[rank::n]"}


def patient_h():
    """Cause, rank and mend of H: the training of one process, from rank 0's model."""
    mend = {1: "model = build()\nfor p in model.parameters():\n    dist.broadcast(p.detach(), 0)"}
    return "no common start", None, mend


def patient_i():
    """Cause, rank and mend of I: the training of one process."""
    return "divided twice", None, {4: "mse(model(x[part]), y[part]).backward()"}


def patient_j():
    """Cause, rank and mend of J: each rank has the sum of all rows, 0 and 1 first the upper's."""
    mend = {2: "pair = dist.new_group([0, 1])\nif rank < 2:", 3: ""}
    return "a group of some", None, mend


def patient_k():
    """Cause, rank and mend of K: rank 1 has the first row of each of the four batches."""
    return "written too early", 0, {4: "buffer = x[0].clone()"}


def patient_l():
    """Cause, rank and mend of L: each rank's rows, below the last one of the rank before."""
    mend = {3: "", 6: "coming.wait()\nrows = torch.cat([above[None], strip])"}
    return "read too early", None, mend


def patient_m():
    """Cause, rank and mend of M: the training of one process."""
    return "another order", 1, {5: 'for column in sorted(settings["columns"]):'}


def patient_n():
    """Cause, rank and mend of N: the four steps of one process, of which two were taken before."""
    return "data again", None, {2: 'batches = iter(steps[saved["step"] :])'}


def patient_o():
    """Cause, rank and mend of O: the training of one process."""
    return "old gradients", None, {5: "optimizer.step()\noptimizer.zero_grad()"}
