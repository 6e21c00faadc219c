"""Right answers to lab 10, different from the solution."""

import hashlib
import io
import os
import tempfile
from math import inf
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from ddpkit.errors import RankDied
from tests.labs.answers import right

# straggler


@right("straggler")
def by_activity(trace):
    def work(rank):
        steps = [trace.step(k).activity(rank).compute for k in range(1, trace.steps)]
        return sum(end - start for parts in steps for start, end in parts)

    times = sorted((work(rank), rank) for rank in trace.ranks)
    slowest, rank = times[-1]
    return rank if slowest > 1.2 * times[(len(times) - 1) // 2][0] else None


@right("straggler")
def by_the_median_step(trace):
    steps = [trace.step(k).breakdown() for k in range(1, trace.steps)]
    work = [median(step[rank].compute_ns for step in steps) for rank in trace.ranks]
    middle = sorted(work)[(len(work) - 1) // 2]
    slow = [rank for rank in trace.ranks if work[rank] >= 1.2 * middle]
    return slow[0] if slow else None


# shares


@right("shares")
def by_bisection(batch_size, speeds):
    low, high = 0.0, batch_size / max(speeds)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(int(middle * speed) for speed in speeds) >= batch_size:
            high = middle
        else:
            low = middle
    taken = [int(high * speed) for speed in speeds]
    for rank in range(len(taken)):
        taken[rank] -= min(taken[rank], sum(taken) - batch_size)
    return taken


@right("shares")
def from_the_largest_parts(batch_size, speeds):
    taken = [int(batch_size * speed / sum(speeds)) for speed in speeds]
    while sum(taken) < batch_size:
        ends = [(share + 1) / speed for share, speed in zip(taken, speeds, strict=True)]
        taken[ends.index(min(ends))] += 1
    return taken


# train_unequal


@right("train_unequal")
def with_dummy_batches(model, batches, lr):
    """Follow HetSeq: multiply the loss of a dummy batch by 0; one all_reduce for each parameter."""
    taken, last = 0, (torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, dtype=torch.int64))
    batches = iter(batches)
    while True:
        batch = next(batches, None)
        has, count = torch.tensor(batch is not None), torch.tensor(len(batch[1]) if batch else 0)
        has = has.int()
        dist.all_reduce(has, dist.ReduceOp.MAX)
        if not has:
            return taken
        dist.all_reduce(count)
        inputs, targets = batch or last
        loss = cross_entropy(model(inputs), targets, reduction="sum") * (batch is not None) / count
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p -= lr * p.grad
        taken += 1


@right("train_unequal")
def sends_nothing_for_nothing(model, batches, lr):
    """Skip the gradients of a step in which no rank has an image."""
    batches, steps = iter(batches), 0
    while True:
        batch = next(batches, None)
        there = torch.tensor([0, 0] if batch is None else [1, len(batch[1])])
        dist.all_reduce(there)
        ranks, images = there.tolist()
        if not ranks:
            return steps
        steps += 1
        if not images:
            continue
        model.zero_grad()
        if batch is not None:
            (cross_entropy(model(batch[0]), batch[1], reduction="sum") / images).backward()
        with torch.no_grad():
            for p in model.parameters():
                total = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(total)
                p -= lr * total


# checkpoints


@right("save_checkpoint")
def with_a_temporary_file(path, step, model, optimizer):
    if not dist.get_rank():
        path = Path(path)
        state = {"step": step, "model": model.state_dict()}
        state["optimizer"] = optimizer.state_dict()
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
                os.rename(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    dist.all_reduce(torch.zeros(1))


@right("save_checkpoint")
def made_in_memory(path, step, model, optimizer):
    if dist.get_rank() == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, file := io.BytesIO())
        try:
            Path(path + ".new").write_bytes(file.getvalue())
            os.replace(path + ".new", path)
        except OSError:
            os.remove(path + ".new")
            raise
    dist.barrier()


@right("load_checkpoint")
def of_two_broadcasts(path, model, optimizer):
    there = torch.tensor([int(dist.get_rank() == 0 and Path(path).is_file())])
    dist.broadcast(there, 0)
    if not there.item():
        return 0
    holds = [torch.load(str(path), weights_only=False) if dist.get_rank() == 0 else {}]
    dist.broadcast_object_list(holds)
    state = holds.pop()
    for each, name in ((model, "model"), (optimizer, "optimizer")):
        each.load_state_dict(state[name])
    return state["step"]


# checkpoint_every


@right("checkpoint_every")
def by_trying(save, mean_time_to_failure):
    best, every = inf, 1.0
    while save / every + every / (2 * mean_time_to_failure) < best:
        best = save / every + every / (2 * mean_time_to_failure)
        every *= 1.01
    return every


@right("checkpoint_every")
def as_daly_has_it(save, mean_time_to_failure):
    return (2 * save * (mean_time_to_failure + save)) ** 0.5 - save


# supervise


@right("supervise")
def again_and_again(start, ranks, max_restarts, least=1, attempt=0):
    run = start(ranks, attempt)
    if not run.error:
        return run
    left = ranks - (len(run.error.ranks) if type(run.error) is RankDied else 0)
    if attempt == max_restarts or left < least:
        raise run.error
    return again_and_again(start, left, max_restarts, least, attempt + 1)


# drifted


@right("drifted")
def by_sha(module):
    named = [*module.named_parameters(), *module.named_buffers()]
    mine = b"".join(
        hashlib.sha256(bytes(t.detach().flatten().view(torch.uint8).tolist())).digest()
        for _, t in named
    )
    mine = torch.frombuffer(bytearray(mine), dtype=torch.uint8).reshape(len(named), 32)
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    differs = [
        any(not torch.equal(all_of_them[0][i], b[i]) for b in all_of_them)
        for i in range(len(named))
    ]
    return [name for (name, _), it_does in zip(named, differs, strict=True) if it_does]


# The clinic


@right("patient_a")
def rank_0_receives_last():
    mend = {
        2: "if rank == 0:\n    dist.recv(above, n - 1)",
        3: "dist.send(strip[-1], (rank + 1) % n)\nif rank:\n    dist.recv(above, rank - 1)",
    }
    return "all send first", None, mend


@right("patient_d")
def in_the_largest_size():
    mend = {
        3: "size = len(x.tensor_split(n)[0])\nown = model(part).detach()\n"
        "mine = torch.zeros(size, 1).double()\nmine[:len(own)] = own",
        6: "lengths = map(len, x.tensor_split(n))\n"
        "result.append(torch.cat([each[:k] for each, k in zip(everyone, lengths)]))",
    }
    return "other sizes", 2, mend


@right("patient_e")
def all_leave_it_out():
    mend = {
        4: "good = loss.isfinite().long()\ndist.all_reduce(good, dist.ReduceOp.MIN)\nif not good:",
    }
    return "left out", 2, mend


@right("patient_f")
def all_evaluate():
    return "one rank alone", 0, {7: "if True:"}


@right("patient_g")
def half_the_order_each():
    return "same data", None, {3: "part = list(range(6 * rank, 6 * rank + 6))"}


# Since torch 2.14, `use_local_synchronization` shifts the names of later groups, only on ranks 0
# and 1. Then new_group hangs on all ranks, without the kit too.
def made_by_its_members():
    mend = {3: "pair = dist.new_group([0, 1], use_local_synchronization=True)"}
    return "a group of some", None, mend


if torch.__version__ < "2.14":
    right("patient_j")(made_by_its_members)


@right("patient_k")
def no_buffer():
    return "written too early", 0, {4: "", 5: "sent.append(dist.isend(x[0], 1))"}


@right("patient_l")
def sends_first():
    mend = {
        2: "sent = dist.isend(strip[-1], (rank + 1) % n)",
        3: "dist.recv(above, (rank - 1) % n)",
        5: "sent.wait()",
        6: "rows = torch.cat([above[None], strip])",
    }
    return "read too early", None, mend


@right("patient_m")
def all_at_once():
    return "another order", 1, {5: "average(model)\nfor column in []:", 9: "", 10: ""}


@right("patient_n")
def by_number():
    return "data again", None, {2: "", 4: "x, y = steps[step]"}


@right("patient_o")
def to_none():
    mend = {1: "for x, y in steps:\n    optimizer.zero_grad()"}
    return "old gradients", None, mend
