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
    """Return the rank that holds up the other ranks in `trace`; None if no rank does.

    The straggler has the longest work of all ranks, at least 20 % longer than the work of the
    median rank. (If two ranks are in the middle, the faster one is the median.) Compute at the same
    time as communication is work too. Add up all steps except the first step, which warms up.
    """
    compute = dict.fromkeys(trace.ranks, 0)
    for k in range(1, trace.steps):
        for rank, parts in trace.step(k).breakdown().items():
            compute[rank] += parts.compute_ns
    slowest = max(compute, key=compute.get)
    return slowest if compute[slowest] >= 1.2 * median_low(compute.values()) else None


def shares(batch_size: int, speeds: list[float]) -> list[int]:
    """Return each rank's number of images, so that all ranks are done as early as possible.

    The shares add up to `batch_size`; a share may be 0. `speeds` are images per second, by rank.
    """
    taken = [0] * len(speeds)
    for _ in range(batch_size):
        first = min(range(len(speeds)), key=lambda rank: (taken[rank] + 1) / speeds[rank])
        taken[first] += 1
    return taken


def train_unequal(model, batches, lr: float) -> int:
    """Train until no rank has a batch left; return the number of steps, on every rank.

    `batches` yields this rank's batches (x, y). Ranks may have different numbers of batches, of any
    length, even 0. If all ranks have 0 images, the step counts and changes nothing. Ask for a batch
    when the previous step is done. After each step, all ranks have the model of one process that
    takes this step with all images of all ranks: SGD, with the mean cross entropy over these
    images. All ranks begin with the same model. Besides the gradients, a step may send a few bytes.
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
    """Save a checkpoint: rank 0 writes the file, and no rank returns before the file is complete.

    Use torch.save to write a dict to `path`, a str: "step", and the state_dict() of "model" and of
    "optimizer". At every moment, `path` holds either the complete new checkpoint or the complete
    previous one. Afterwards no second file is left. If the disk was full, still raise the error.
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
    """Load a checkpoint of save_checkpoint; return the step to go on with, on every rank.

    Only rank 0 is sure to see the file. If rank 0 sees no file, return 0 and change nothing. A
    damaged file is an error, and stays unchanged.
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
    """Return the seconds between two saves that lose the least time; both arguments are seconds."""
    return sqrt(2 * save * mean_time_to_failure)


def supervise(start, ranks: int, max_restarts: int, least: int = 1):
    """Return the first run that succeeds; if no attempt succeeds, raise the error of the last one.

    `start(ranks, attempt)` makes a run; `run.error` is None if the run succeeded. Attempts count
    from 0. After a failure start again, at most max_restarts times. If the error is a RankDied, go
    on without the ranks that died; if fewer than `least` ranks are left, do not start again.
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
    """Return the names of parameters and buffers that differ in any bit between ranks.

    List parameters first, then buffers, in the order of the module; the same list on every rank. A
    rank sends at most 64 bytes for each tensor, even for a large tensor.
    """
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    as_bytes = [t.detach().cpu().reshape(-1).view(torch.uint8).numpy() for t in tensors.values()]
    mine = torch.tensor([zlib.crc32(each) for each in as_bytes])
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return [name for name, differs in zip(tensors, (low != high).tolist()) if differs]


def patient_a():
    """Return A's cause, rank and mend. Mended, each rank gets the last row of the previous rank."""
    mend = {2: "sent = dist.isend(strip[-1], (rank + 1) % n)"}
    mend[3] = "dist.recv(above, (rank - 1) % n)\nsent.wait()"
    return "all send first", None, mend


def patient_b():
    """Return B's cause, rank and mend. Mended, rank 0 notes the mean loss of each whole batch."""
    note = "mean = loss.detach() / n\ndist.all_reduce(mean)\nif rank == 0:"
    return "one rank alone", 0, {8: note, 9: "", 10: ""}


def patient_c():
    """Return C's cause, rank and mend. Mended, C trains like one process."""
    return "another order", 2, {6: 'for name in sorted(settings["average"]):'}


def patient_d():
    """Return D's cause, rank and mend. Mended, each rank gets all predictions of each batch."""
    mend = {4: "everyone = [None] * n", 5: "dist.all_gather_object(everyone, mine)"}
    return "other sizes", 2, mend


def patient_e():
    """Return E's cause, rank and mend.

    Mended, the broken batch counts for nothing, and all other batches count as before.
    """
    return "left out", 2, {5: "loss = sum(0 * p.sum() for p in model.parameters())"}


def patient_f():
    """Return F's cause, rank and mend: rank 0 notes each whole batch's loss after its step."""
    return "one rank alone", 0, {9: "log.append(mse(model(x), y).item())"}


def patient_g():
    """Return G's cause, rank and mend. Mended, the ranks share each batch."""
    return "same data", None, {3: "part = order[rank::n]"}


def patient_h():
    """Return H's cause, rank and mend. Mended, H trains like one process, from rank 0's model."""
    mend = {1: "model = build()\nfor p in model.parameters():\n    dist.broadcast(p.detach(), 0)"}
    return "no common start", None, mend


def patient_i():
    """Return I's cause, rank and mend. Mended, I trains like one process."""
    return "divided twice", None, {4: "mse(model(x[part]), y[part]).backward()"}


def patient_j():
    """Return J's cause, rank and mend.

    Mended, each rank gets the sum of all rows; ranks 0 and 1 first get the sum of the upper half.
    """
    mend = {2: "pair = dist.new_group([0, 1])\nif rank < 2:", 3: ""}
    return "a group of some", None, mend


def patient_k():
    """Return K's cause, rank and mend: rank 1 gets the first row of each of four batches."""
    return "written too early", 0, {4: "buffer = x[0].clone()"}


def patient_l():
    """Return L's cause, rank and mend.

    Mended, each rank has its own rows below the last row of the previous rank.
    """
    mend = {3: "", 6: "coming.wait()\nrows = torch.cat([above[None], strip])"}
    return "read too early", None, mend


def patient_m():
    """Return M's cause, rank and mend. Mended, M trains like one process."""
    return "another order", 1, {5: 'for column in sorted(settings["columns"]):'}


def patient_n():
    """Return N's cause, rank and mend.

    Mended, N ends like one process after four steps; the job took two steps before it was killed.
    """
    return "data again", None, {2: 'batches = iter(steps[saved["step"] :])'}


def patient_o():
    """Return O's cause, rank and mend. Mended, O trains like one process."""
    return "old gradients", None, {5: "optimizer.step()\noptimizer.zero_grad()"}
