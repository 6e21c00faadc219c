# ---
# jupyter:
#   ddpkit:
#     builds: "a job that survives faults: unequal shares, checkpoints, restarts; and fifteen faults to diagnose"
#     minutes: 175
#     needs: labs 04 and 06
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 · Faults: one slow rank, one dead rank, and a clinic
#
# **You will build** the tools that keep large jobs alive: a finder of slow ranks, training with
# unequal shares, checkpoints that survive a kill, a supervisor, and a test that replicas are equal.
# Then you find the faults of nine programs.
#
# **You need** labs 04 and 06. The lab takes two hours. The clinic takes 55 more minutes, perhaps on
# a different day.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check, show

# %%
import os, signal, tempfile, zlib
from math import sqrt
from pathlib import Path
from statistics import median_low
from torch.nn.functional import cross_entropy
from ddpkit.data import load_digits
from ddpkit.errors import RankDied
from ddpkit.view import compare

# %%
average_flat = carry("average_flat")
x, y = map(torch.from_numpy, load_digits())


# %% tags=["answers"]
def mlp():
    torch.manual_seed(0)
    hidden = [torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()]
    return torch.nn.Sequential(*hidden, torch.nn.Linear(512, 10))


# %% [markdown]
# ## One slow rank
#
# The batch has 1,792 images, 448 for each of four ranks. Each rank computes like one core of a
# laptop. ddpkit counts the operations and does not time them, so your numbers are the same as on
# every other computer.


# %%
def work(sizes, steps=4):
    rank = dist.get_rank()
    mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(x[mine]), y[mine]).backward()
        average_flat(model)
        optimizer.step()


# %%
def step_ms(run):
    if not run.trace.steps:  # under torchrun with too few ranks
        return None
    start, end = run.trace.step(3).window_of(0)
    return round((end - start) / 1e6, 1)


alike = Cluster(4, machine="laptop core").run(work, [448] * 4)
print("ms of a step:", step_ms(alike))

# %% [markdown]
# In the next run, rank 3 is half as fast, like an old machine or a machine that is too hot.
#
# **Predict:** how long is a step? Which ranks wait, and how long does each of these ranks wait?

# %% guess="slow_ms"
slow_ms = 2 * 14.1  # your guess, in ms

# %%
unequal = Cluster(4, machine="laptop core", speed={3: 0.5})
one_slow = unequal.run(work, [448] * 4)
beside(slow_ms, step_ms(one_slow), "ms")
compare(alike, one_slow, labels=["alike", "rank 3 slow"])

# %% [markdown]
# **Notice:** one rank of four is slow, and *all* steps take twice as long. Ranks 0 to 2 wait
# in the all-reduce, for half of the time. If you look only at ranks 0 to 2, you see only a slow
# network.

# %% [markdown]
# ## Your turn: find the straggler
#
# A **straggler** is a rank that computes longer than the other ranks, so that the other ranks wait
# for it.
#
# The steps of all ranks end together, so the length of a step does not show the straggler. Look at
# the parts of a step: `trace.step(k).breakdown()[rank].compute_ns` is the time in which a rank
# computes, without any waiting. `trace.steps` is the number of steps, and `trace.ranks` lists the
# ranks.


# %% exercise="straggler"
def straggler(trace) -> int | None:
    """Return the rank that holds up the other ranks in `trace`; None if no rank does.

    The straggler has the longest work of all ranks, at least 20 % longer than the work of the
    median rank. (If two ranks are in the middle, the faster one is the median.) Compute at the same
    time as communication is work too. Add up all steps except the first step, which warms up.
    """
    # BEGIN SOLUTION
    compute = dict.fromkeys(trace.ranks, 0)
    for k in range(1, trace.steps):
        for rank, parts in trace.step(k).breakdown().items():
            compute[rank] += parts.compute_ns
    slowest = max(compute, key=compute.get)
    return slowest if compute[slowest] >= 1.2 * median_low(compute.values()) else None
    # END SOLUTION


# %% check="straggler"
check(straggler)

# %%
print("alike:", straggler(alike.trace), "  one slow:", straggler(one_slow.trace))

# %% [markdown]
# (Megatron-LM has a flag for finding stragglers, `--log-straggler`, in its `arguments.py`.)

# %% [markdown]
# **In words:** a step has become twice as long, and the ranks wait in all_reduce. Which numbers of a
# trace show whether a rank or a link is slow? How large would each number be in both cases?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Your turn: shares
#
# A research lab buys its machines in different years, so the machines are unequal.
# [HetSeq](https://arxiv.org/abs/2009.14783) (Ding, Botzer and Weninger, 2020) trains on all machines
# of such a lab: each machine gets a share that fits its speed.
#
# **Predict:** with shares by speed, how long is a step? Averaging and the optimizer, the parts after
# backward in the picture, don't shrink with the share.

# %% guess="fair_ms"
fair_ms = 2 * ((14.1 - 1.2) * 4 / 7 + 1.2)  # your guess, in ms


# %% exercise="shares"
def shares(batch_size: int, speeds: list[float]) -> list[int]:
    """Return each rank's number of images, so that all ranks are done as early as possible.

    The shares add up to `batch_size`; a share may be 0. `speeds` are images per second, by rank.
    """
    # BEGIN SOLUTION
    taken = [0] * len(speeds)
    for _ in range(batch_size):
        first = min(range(len(speeds)), key=lambda rank: (taken[rank] + 1) / speeds[rank])
        taken[first] += 1
    return taken
    # END SOLUTION


# %% check="shares"
check(shares)

# %%
by_speed = shares(1792, [1, 1, 1, 0.5])
print(by_speed)
fair = unequal.run(work, by_speed)
beside(fair_ms, step_ms(fair), "ms")
compare(one_slow, fair, labels=["equal shares", "shares by speed"])

# %% [markdown]
# **Notice:** no rank waits for long, and the slow machine still helps. Rank 0 still waits a
# little, because averaging and the optimizer don't shrink with the share.

# %% [markdown]
# ## Is the training still the same?
#
# `average_flat` takes the mean of four means. The next cell makes four parts of unequal size, from
# images that are sorted by digit, as images in files often are.
#
# **Predict:** is the mean of the parts' means the mean of the batch?

# %%
sizes = [900, 600, 270, 27]
order = y.argsort()
with torch.no_grad():
    outputs = mlp()(x[order])
    parts = zip(outputs.split(sizes), y[order].split(sizes))
    means = [cross_entropy(*part) for part in parts]
    whole = cross_entropy(outputs, y[order])
print(f"mean of means {sum(means) / 4:.4f}, mean of all images {whole:.4f}")

# %% [markdown]
# **Notice:** one image of the smallest part has the same weight as 33 images of the largest
# part. The result is no longer the same as that of one process, and no error shows the mistake.

# %% [markdown]
# ## One batch more
#
# Unequal machines have unequal amounts of data, so one rank runs out of data first. In the next run,
# rank 1 has one batch more than ranks 0 and 2.
#
# **Predict:** for which call does rank 1 wait, and where are ranks 0 and 2?


# %%
def with_torchs_ddp(batches):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
    for k in range(batches[dist.get_rank()]):
        cross_entropy(model(x[32 * k : 32 * k + 32]), y[32 * k : 32 * k + 32]).backward()


run = Cluster(3).run(with_torchs_ddp, [3, 4, 3], expect_error=True)

# %% [markdown]
# ## Your turn: unequal training
#
# Two rules of HetSeq solve both problems. First, before a step, the ranks add up their numbers of
# images, so that each image has the same weight. Second, a rank without data takes part with a weight
# of 0, until no rank has a batch.
#
# (torch's own solution is `Join`, in lab 07.)


# %% exercise="train_unequal"
def train_unequal(model, batches, lr: float) -> int:
    """Train until no rank has a batch left; return the number of steps, on every rank.

    `batches` yields this rank's batches (x, y). Ranks may have different numbers of batches, of any
    length, even 0. If all ranks have 0 images, the step counts and changes nothing. Ask for a batch
    when the previous step is done. After each step, all ranks have the model of one process that
    takes this step with all images of all ranks: SGD, with the mean cross entropy over these
    images. All ranks begin with the same model. Besides the gradients, a step may send a few bytes.
    """
    # BEGIN SOLUTION
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
    # END SOLUTION


# %% check="train_unequal"
check(train_unequal)


# %%
def uneven(batches):
    model, rank = mlp(), dist.get_rank()
    parts = (slice(64 * k + 16 * rank, 64 * k + 16 * rank + 16) for k in range(batches[rank]))
    steps = train_unequal(model, ((x[part], y[part]) for part in parts), lr=0.1)
    return steps, model(x[:1]).argmax().item()


print(Cluster(3).run(uneven, [3, 4, 1]).results)

# %% [markdown]
# ## A full disk
#
# Sooner or later a job ends before it is done. So the job saves **checkpoints**: a checkpoint has
# everything that a training needs to go on. Below, a new checkpoint is written over the old
# checkpoint, and the disk is full before the end. (`full_disk` limits the bytes that this process
# can write into a file.)
#
# **Predict:** which checkpoint can be loaded afterwards: the old checkpoint, the new checkpoint, or
# no checkpoint?

# %%
from ddpkit.faults import full_disk

folder = tempfile.mkdtemp(prefix="lab10-")
path = os.path.join(folder, "naive.pt")
torch.save({"step": 3, "model": mlp().state_dict()}, path)


# %%
def said(f, *arguments):
    """Return f's result, or the first line of the error that f raises."""
    try:
        return f(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


with full_disk(64_000):
    print("save:", said(torch.save, {"step": 6, "model": mlp().state_dict()}, path))
print("load:", said(torch.load, path))

# %% [markdown]
# **Notice:** neither checkpoint can be loaded. The file now contains only a part of the new
# checkpoint, and the old checkpoint is lost. A kill in the middle of a save does the same damage,
# and so do several ranks that write one file.

# %% [markdown]
# ## Your turn: save
#
# Write the new checkpoint into a second file in the same folder, and then replace the old file by
# the complete new file. `os.replace(a, b)` replaces the file in a single action: at each moment, `b`
# is either the old file or the new file. (Against a power cut, call `os.fsync` before `os.replace`.)


# %% exercise="save_checkpoint"
def save_checkpoint(path, step: int, model, optimizer) -> None:
    """Save a checkpoint: rank 0 writes the file, and no rank returns before the file is complete.

    Use torch.save to write a dict to `path`, a str: "step", and the state_dict() of "model" and of
    "optimizer". At every moment, `path` holds either the complete new checkpoint or the complete
    previous one. Afterwards no second file is left. If the disk was full, still raise the error.
    """
    # BEGIN SOLUTION
    if dist.get_rank() == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        try:
            torch.save(state, f"{path}.new")
            os.replace(f"{path}.new", path)
        finally:
            Path(f"{path}.new").unlink(missing_ok=True)  # a part, if the disk is full
    dist.barrier()
    # END SOLUTION


# %% check="save_checkpoint"
check(save_checkpoint)

# %% [markdown]
# ## Your turn: load
#
# On several hosts, the file may be on rank 0's disk alone. `dist.broadcast_object_list([item],
# src=0)` sends any Python object that can be pickled. On the other ranks, the call replaces the item
# of the list by this object.


# %% exercise="load_checkpoint"
def load_checkpoint(path, model, optimizer) -> int:
    """Load a checkpoint of save_checkpoint; return the step to go on with, on every rank.

    Only rank 0 is sure to see the file. If rank 0 sees no file, return 0 and change nothing. A
    damaged file is an error, and stays unchanged.
    """
    # BEGIN SOLUTION
    found = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        found = [torch.load(path)]
    dist.broadcast_object_list(found, src=0)
    if found[0] is None:
        return 0
    model.load_state_dict(found[0]["model"])
    optimizer.load_state_dict(found[0]["optimizer"])
    return found[0]["step"]
    # END SOLUTION


# %% check="load_checkpoint"
check(load_checkpoint)

# %% [markdown]
# ## One dead rank
#
# A job has 8 steps, and saves after every third step. The batch of a step depends only on the number
# of the step. So the number of the next step is all that a checkpoint needs to know about the data.


# %%
def batch_of(step, size=96):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))
    return order[:size].tensor_split(dist.get_world_size())[dist.get_rank()]


def share_of_loss(model, step, size=96):
    """Return this rank's loss, scaled: the mean over all ranks is the loss of the whole batch."""
    part = batch_of(step, size)
    loss = cross_entropy(model(x[part]), y[part], reduction="sum")
    return loss * dist.get_world_size() / size


# %%
def job(path, fatal=None, steps=8):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = load_checkpoint(path, model, optimizer)
    for step in range(start, steps):
        if fatal == (dist.get_rank(), step):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        share_of_loss(model, step).backward()
        average_flat(model)
        optimizer.step()
        if (step + 1) % 3 == 0:
            save_checkpoint(path, step + 1, model, optimizer)
    return start, torch.nn.utils.parameters_to_vector(model.parameters()).detach()


# %% [markdown]
# **Predict:** rank 2 is killed at the beginning of step 5 (counted from 0). Where does the next
# attempt begin? Which steps run twice?


# %%
def in_folder(name):
    return os.path.join(folder, name)


undisturbed = Cluster(3).run(job, in_folder("undisturbed.pt"))
laptops = Cluster(3, machine="laptop core")
killed = laptops.run(job, in_folder("killed.pt"), fatal=(2, 5), expect_error=True)

# %% [markdown]
# A killed rank cannot report its last calls. But during the run, each rank writes the beginning and
# the end of its calls and of its compute into a file, and this file remains after the rank has died.
# (Without `expect_error`, the run is an attribute of the error: `show(error.run)`.)
#
# **Predict:** which parts of step 5 do ranks 0 and 1 complete?

# %%
show(killed)

# %% [markdown]
# **Notice:** ranks 0 and 1 need no other rank for forward and backward. Then ranks 0 and 1
# block in the all-reduce, where they would wait for rank 2 forever. Therefore the kit ends the run.
# The picture shows no bar for this wait: a wait that never ends takes no emulated time.

# %%
again = Cluster(3).run(job, in_folder("killed.pt"))
(_, right), (start, resumed) = undisturbed.results[0], again.results[0]
print(
    "began at step",
    start,
    "and ended bit for bit as the undisturbed job:",
    torch.equal(right, resumed),
)

# %% [markdown]
# **Notice:** steps 3 and 4 ran twice, and the result does not show the repetition. Suppose
# that the order of the data came from a generator that restarts with the job. Then the job would
# have used some images twice and other images never, without an error ([this fault
# happens](https://github.com/modelscope/ms-swift/issues/10050)).

# %% [markdown]
# ## Your turn: how often?
#
# A job saves every T seconds. A save takes s seconds, so the job loses the share s/T of its time. A
# failure comes every f seconds on average, and loses T/2 seconds of work on average. So the lost
# share of the time is
#
# $$\frac{s}{T} + \frac{T}{2f}$$
#
# For which T is the lost share smallest? ([Young, 1974](https://doi.org/10.1145/361147.361115).)


# %% exercise="checkpoint_every"
def checkpoint_every(save: float, mean_time_to_failure: float) -> float:
    """Return the seconds between two saves that lose the least time; both arguments are seconds."""
    # BEGIN SOLUTION
    return sqrt(2 * save * mean_time_to_failure)
    # END SOLUTION


# %% check="checkpoint_every"
check(checkpoint_every)

# %% [markdown]
# The training of Llama 3 405B was interrupted 466 times in 54 days, on 16,384 GPUs ([The Llama 3
# Herd of Models](https://arxiv.org/abs/2407.21783), section 3.3.4).
#
# **Predict:** how many percent of the time are lost if a save takes a minute? How many percent are
# lost if a save takes 10 seconds?

# %% guess="lost_percent"
lost_percent = 100 * (2 * 60 / (54 * 24 * 3600 / 466)) ** 0.5  # your guess, for a minute

# %%
failure = 54 * 24 * 3600 / 466
for save in (60, 10):
    every = checkpoint_every(save, failure)
    share = save / every + every / (2 * failure)
    print(f"a save of {save} s: every {every / 60:.0f} minutes, {share:.1%} of the time is lost")
    if save == 60:
        beside(lost_percent, 100 * share, "percent")

# %% [markdown]
# ## Your turn: a supervisor
#
# At three in the morning, nobody starts the second attempt by hand. torchrun's agent starts the
# second attempt, and the core of the agent is ten lines of code. A dead machine may not come back,
# so go on with fewer ranks.
#
# A failed run has an error, `run.error`. If the error is a `RankDied`, `run.error.ranks` lists the
# dead ranks.


# %% exercise="supervise"
def supervise(start, ranks: int, max_restarts: int, least: int = 1):
    """Return the first run that succeeds; if no attempt succeeds, raise the error of the last one.

    `start(ranks, attempt)` makes a run; `run.error` is None if the run succeeded. Attempts count
    from 0. After a failure start again, at most max_restarts times. If the error is a RankDied, go
    on without the ranks that died; if fewer than `least` ranks are left, do not start again.
    """
    # BEGIN SOLUTION
    for attempt in range(max_restarts + 1):
        run = start(ranks, attempt)
        if run.error is None:
            return run
        if isinstance(run.error, RankDied):
            ranks -= len(run.error.ranks)
        if ranks < least:
            break
    raise run.error
    # END SOLUTION


# %% check="supervise"
check(supervise)

# %% [markdown]
# **Predict:** three ranks begin the job, and two ranks end the job. Will the parameters be the same
# again, bit for bit?


# %%
def start_job(ranks, attempt):
    fatal = (2, 5) if attempt == 0 else None
    return Cluster(ranks).run(job, in_folder("supervised.pt"), fatal, expect_error=attempt == 0)


run = supervise(start_job, ranks=3, max_restarts=2)
if run.results[0]:  # None under torchrun: the kit skips a run that kills a rank
    apart = (run.results[0][1] - right).abs().max()
    print(f"{len(run.results)} ranks, from step {run.results[0][0]}; farthest apart {apart:.0e}")

# %% [markdown]
# **Notice:** the batch is the same, but is cut into two parts instead of three. So only the
# rounding of the sums differs.
#
# Larger systems replace only the dead ranks: with
# [torchft](https://github.com/meta-pytorch/torchft), a group of new ranks joins at the next step,
# and takes the state of a group that is still alive.

# %% [markdown]
# ## Your turn: silent drift
#
# Six of Llama 3's interruptions were silent data corruption: a chip computes wrong numbers without an
# error ([table 5](https://arxiv.org/abs/2407.21783)). A **replica** is the copy of the model on a
# rank. Replicas must be equal to the last bit, so a digest of each tensor finds the replica that
# differs. `zlib.crc32` makes a digest of 4 bytes from any bytes.


# %% exercise="drifted"
def drifted(module) -> list[str]:
    """Return the names of parameters and buffers that differ in any bit between ranks.

    List parameters first, then buffers, in the order of the module; the same list on every rank. A
    rank sends at most 64 bytes for each tensor, even for a large tensor.
    """
    # BEGIN SOLUTION
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    as_bytes = [t.detach().cpu().reshape(-1).view(torch.uint8).numpy() for t in tensors.values()]
    mine = torch.tensor([zlib.crc32(each) for each in as_bytes])
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return [name for name, differs in zip(tensors, (low != high).tolist()) if differs]
    # END SOLUTION


# %% check="drifted"
check(drifted)

# %% [markdown]
# (Megatron-LM has a flag for such a test, `--check-weight-hash-across-dp-replicas-interval`.)

# %% [markdown]
# ## The clinic
#
# Here are nine programs, each with one classic fault. Each program may use these names:

# %%
from ddpkit.faults import CAUSES, RUNS_WITH, patient

print(RUNS_WITH)

# %% [markdown]
# For each program, find the cause of the fault and the rank at fault, and write a *mend*, a
# correction of the program. The possible causes are:

# %%
for cause, meaning in CAUSES.items():
    print(f"{cause:16} {meaning}")

# %% [markdown]
# ## Your turn: patient A
#
# A diagnosis has one of these causes, and the rank at fault, or None if no single rank is at fault.
# A mend is a dict with new text for lines of the program, `{3: "the new line 3"}`. The text may have
# several lines, or may be "". The text begins at the indentation of the old line. Put `\n` between the
# lines of a new `if`, and indent the inner lines.

# %% [markdown]
# A mend may have at most 80 new words and signs, and each rank must still send the right data.

# %%
print(patient("A"))
run = patient("A").run()


# %% exercise="patient_a"
def patient_a():
    """Return A's cause, rank and mend. Mended, each rank gets the last row of the previous rank."""
    # BEGIN SOLUTION
    mend = {2: "sent = dist.isend(strip[-1], (rank + 1) % n)"}
    mend[3] = "dist.recv(above, (rank - 1) % n)\nsent.wait()"
    return "all send first", None, mend
    # END SOLUTION


# %% check="patient_a"
check(patient_a)

# %% [markdown]
# ## Your turn: patient B
#
# Rank 0 notes the mean loss of each step.

# %%
print(patient("B"))
run = patient("B").run()


# %% exercise="patient_b"
def patient_b():
    """Return B's cause, rank and mend. Mended, rank 0 notes the mean loss of each whole batch."""
    # BEGIN SOLUTION
    note = "mean = loss.detach() / n\ndist.all_reduce(mean)\nif rank == 0:"
    return "one rank alone", 0, {8: note, 9: "", 10: ""}
    # END SOLUTION


# %% check="patient_b"
check(patient_b)

# %% [markdown]
# ## Your turn: patient C
#
# The program runs one all-reduce for each parameter.

# %%
print(patient("C"))
run = patient("C").run()


# %% exercise="patient_c"
def patient_c():
    """Return C's cause, rank and mend. Mended, C trains like one process."""
    # BEGIN SOLUTION
    return "another order", 2, {6: 'for name in sorted(settings["average"]):'}
    # END SOLUTION


# %% check="patient_c"
check(patient_c)

# %% [markdown]
# ## Your turn: patient D
#
# All ranks gather all predictions. The first three steps run without an error.

# %%
print(patient("D"))
run = patient("D").run()


# %% exercise="patient_d"
def patient_d():
    """Return D's cause, rank and mend. Mended, each rank gets all predictions of each batch."""
    # BEGIN SOLUTION
    mend = {4: "everyone = [None] * n", 5: "dist.all_gather_object(everyone, mine)"}
    return "other sizes", 2, mend
    # END SOLUTION


# %% check="patient_d"
check(patient_d)

# %% [markdown]
# ## Your turn: patient E
#
# The program leaves out a batch with a broken image. At which point does the run hang?

# %%
print(patient("E"))
run = patient("E").run()


# %% exercise="patient_e"
def patient_e():
    """Return E's cause, rank and mend.

    Mended, the broken batch counts for nothing, and all other batches count as before.
    """
    # BEGIN SOLUTION
    return "left out", 2, {5: "loss = sum(0 * p.sum() for p in model.parameters())"}
    # END SOLUTION


# %% check="patient_e"
check(patient_e)

# %% [markdown]
# ## Your turn: patient F
#
# The program uses torch's DDP, and rank 0 evaluates alone. (DDP averages gradients in backward. Which
# tensors does forward send?)

# %%
print(patient("F"))
run = patient("F").run()


# %% exercise="patient_f"
def patient_f():
    """Return F's cause, rank and mend: rank 0 notes each whole batch's loss after its step."""
    # BEGIN SOLUTION
    return "one rank alone", 0, {9: "log.append(mse(model(x), y).item())"}
    # END SOLUTION


# %% check="patient_f"
check(patient_f)

# %% [markdown]
# ## Your turn: patient G
#
# From here on, no program stops with an error, but the programs give wrong results. Read the report
# below the program.

# %%
print(patient("G"))
run = patient("G").run()


# %% exercise="patient_g"
def patient_g():
    """Return G's cause, rank and mend. Mended, the ranks share each batch."""
    # BEGIN SOLUTION
    return "same data", None, {3: "part = order[rank::n]"}
    # END SOLUTION


# %% check="patient_g"
check(patient_g)

# %% [markdown]
# ## Your turn: patient H
#
# Does program H have the same fault as program G?

# %%
print(patient("H"))
run = patient("H").run()


# %% exercise="patient_h"
def patient_h():
    """Return H's cause, rank and mend. Mended, H trains like one process, from rank 0's model."""
    # BEGIN SOLUTION
    mend = {1: "model = build()\nfor p in model.parameters():\n    dist.broadcast(p.detach(), 0)"}
    return "no common start", None, mend
    # END SOLUTION


# %% check="patient_h"
check(patient_h)

# %% [markdown]
# ## Your turn: patient I
#
# This is the last patient. All ranks agree, and the loss goes down.

# %%
print(patient("I"))
run = patient("I").run()


# %% exercise="patient_i"
def patient_i():
    """Return I's cause, rank and mend. Mended, I trains like one process."""
    # BEGIN SOLUTION
    return "divided twice", None, {4: "mse(model(x[part]), y[part]).backward()"}
    # END SOLUTION


# %% check="patient_i"
check(patient_i)

# %% [markdown]
# **Notice:** the programs that hang or stop with an error are the lucky cases. A loss curve
# does not show the silent faults, because each loss goes down. You found the silent faults only
# because the report compares the result with one process, or compares the ranks with each other.

# %% [markdown]
# **In words:** which of the faults of G, H and I would `drifted` find, and in which step? How would
# you find the other faults in a job that is too large for one process?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Optional: six more patients
#
# J stops with an error. K to O end without an error, but give wrong results. By luck, K and L may
# give right results on some machines. So the check also makes sure that with your mends, K and L do
# not touch a tensor while a message still uses it.

# %% [markdown]
# ## Your turn: patient J
#
# Ranks 0 and 1 have the upper half of a picture, and also need the sum of the upper half.

# %%
print(patient("J"))
run = patient("J").run()


# %% exercise="patient_j"
def patient_j():
    """Return J's cause, rank and mend.

    Mended, each rank gets the sum of all rows; ranks 0 and 1 first get the sum of the upper half.
    """
    # BEGIN SOLUTION
    mend = {2: "pair = dist.new_group([0, 1])\nif rank < 2:", 3: ""}
    return "a group of some", None, mend
    # END SOLUTION


# %% check="patient_j"
check(patient_j)

# %% [markdown]
# ## Your turn: patient K
#
# Rank 0 sends a row of each batch, and rank 1 collects the rows.

# %%
print(patient("K"))
run = patient("K").run()


# %% exercise="patient_k"
def patient_k():
    """Return K's cause, rank and mend: rank 1 gets the first row of each of four batches."""
    # BEGIN SOLUTION
    return "written too early", 0, {4: "buffer = x[0].clone()"}
    # END SOLUTION


# %% check="patient_k"
check(patient_k)

# %% [markdown]
# ## Your turn: patient L
#
# The first row of each rank needs the last row of the previous rank.

# %%
print(patient("L"))
run = patient("L").run()


# %% exercise="patient_l"
def patient_l():
    """Return L's cause, rank and mend.

    Mended, each rank has its own rows below the last row of the previous rank.
    """
    # BEGIN SOLUTION
    mend = {3: "", 6: "coming.wait()\nrows = torch.cat([above[None], strip])"}
    return "read too early", None, mend
    # END SOLUTION


# %% check="patient_l"
check(patient_l)

# %% [markdown]
# ## Your turn: patient M
#
# M has the same fault as C, but M does not stop with an error. Why?

# %%
print(patient("M"))
run = patient("M").run()


# %% exercise="patient_m"
def patient_m():
    """Return M's cause, rank and mend. Mended, M trains like one process."""
    # BEGIN SOLUTION
    return "another order", 1, {5: 'for column in sorted(settings["columns"]):'}
    # END SOLUTION


# %% check="patient_m"
check(patient_m)

# %% [markdown]
# ## Your turn: patient N
#
# The job was killed after two of four steps, and goes on from its checkpoint.

# %%
print(patient("N"))
run = patient("N").run()


# %% exercise="patient_n"
def patient_n():
    """Return N's cause, rank and mend.

    Mended, N ends like one process after four steps; the job took two steps before it was killed.
    """
    # BEGIN SOLUTION
    return "data again", None, {2: 'batches = iter(steps[saved["step"] :])'}
    # END SOLUTION


# %% check="patient_n"
check(patient_n)

# %% [markdown]
# ## Your turn: patient O
#
# O is the shortest program.

# %%
print(patient("O"))
run = patient("O").run()


# %% exercise="patient_o"
def patient_o():
    """Return O's cause, rank and mend. Mended, O trains like one process."""
    # BEGIN SOLUTION
    return "old gradients", None, {5: "optimizer.step()\noptimizer.zero_grad()"}
    # END SOLUTION


# %% check="patient_o"
check(patient_o)

# %% [markdown]
# ## Optional: the agent of torchrun
#
# torchrun's agent on each host works like your `supervise`. The next cell starts the real agent, with
# a script that kills one of its two ranks in the first attempt. When you press Stop,
# `ddpkit.torchrun` ends all its processes; `!torchrun` would leave the ranks behind.
#
# **Predict:** does the agent start rank 1 alone again, or both ranks?

# %%
script = """
import os, signal, sys, torch, torch.distributed as dist

attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo")
sys.stdout.write(f"attempt {attempt} rank {dist.get_rank()} begins\\n")
dist.barrier()
if attempt == "0" and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
"""
with open(in_folder("restarts.py"), "w") as file:
    file.write(script)

# %%
from ddpkit import torchrun

ended = torchrun(in_folder("restarts.py"), ranks=2, max_restarts=1, show=False)
begun = sorted(line for line in ended.output.splitlines() if line.endswith("begins"))
print(*begun, f"exit code {ended.code}", sep="\n")

# %% [markdown]
# **Notice:** the agent starts all ranks again, because the surviving rank was in a collective
# that can never finish. (The kit sets `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`. Without this setting,
# the second attempt of torch 2.13 finds the addresses of the first attempt, and fails: [issue
# 135712](https://github.com/pytorch/pytorch/issues/135712).)

# %% [markdown]
# ## The way out
#
# Save this program in `train.py`, and run `torchrun --nproc-per-node 4 --max-restarts 3 train.py`.
# After a failure, torchrun's agent starts all ranks again, and `run.pt` holds the step to go on with.
#
# ```python
# import os, torch, torch.distributed as dist
#
# dist.init_process_group("gloo")
# model, path, start = torch.nn.Linear(8, 1), "run.pt", 0
# optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
# if os.path.exists(path):  # on a disk that all hosts share
#     state = torch.load(path)
#     model.load_state_dict(state["model"]), optimizer.load_state_dict(state["optimizer"])
#     start = state["step"]
# ddp = torch.nn.parallel.DistributedDataParallel(model)
# for step in range(start, 8):
#     torch.manual_seed(1000 * step + dist.get_rank())
#     x = torch.randn(16, 8)
#     optimizer.zero_grad()
#     (ddp(x) - x.sum(1, keepdim=True)).square().mean().backward()
#     optimizer.step()
#     if not dist.get_rank():
#         state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
#         torch.save(state, path + ".new"), os.replace(path + ".new", path)
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - found the straggler, and given each machine a share that fits its speed;
# - trained with unequal shares, with the same result as one process, until no rank had data;
# - saved checkpoints that survive a kill and a full disk, and resumed bit for bit;
# - corrected nine programs; three of them gave no error.
#
# **Next:** lab 11 cuts the model instead of the batch, and gives a layer to each rank.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 10_faults.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
