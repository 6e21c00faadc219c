# ---
# jupyter:
#   ddpkit:
#     builds: a fast training of a small transformer, made from a slow training and its trace, and scored
#     minutes: 90
#     needs: labs 05 and 06; all others help
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
# # 15 · Capstone
#
# **You will build** a fast training. The lab gives you a script that trains a small transformer on
# four ranks, each with a shard of the text. The script is correct, but slow. You find the reasons in
# the trace of the script, write a faster training of the same model, and get a score.
#
# **You need** labs 05 and 06; all others help. About 90 minutes, or as long as you like.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, PerRank, beside, carry, check, show

# %%
from statistics import median_low
from ddpkit.capstone import GIVEN_MS, LINK, MACHINE, MEMORY, TextModel, TextTask
from ddpkit.capstone import floor_ms, score, show_costs

flatten = carry("flatten")
unflatten = carry("unflatten")

# %% [markdown]
# ## The cluster
#
# There are two hosts, each with two small computers. Inside a host messages are fast. Between the
# hosts is one thin cable, which both computers of a host share. ddpkit counts the operations and
# does not time them, so your numbers are the same as on every other laptop.

# %%
print("machine:", MACHINE)
print("inside a host:", LINK["inside"], "   between the hosts:", LINK["between"])
cluster = Cluster(4, machine=MACHINE, link=LINK)

# %% [markdown]
# ## The language and the model
#
# The text is of a language that nobody has read before: each `TextTask` makes a new language. The
# language has four dialects. A dialect has eight letters of its own, and a table with the probability
# of each next letter after each letter. So we know the **entropy** of the language: the smallest loss
# that a model can have.

# %% [markdown]
# Each rank has a shard, the text of one dialect, and no other rank has this text. A model that
# learns from only one shard learns nothing about the other dialects.

# %%
from ddpkit.capstone.language import ALPHABET

task = TextTask(seed=1)
for rank, shard in enumerate(task.shards):
    lengths = [len(stretch) - 1 for stretch in shard[0]]
    print(f"rank {rank}:", "".join(ALPHABET[letter] for letter in shard[0][0]), lengths)
print(f"entropy: {task.language.entropy:.2f} nats a letter")

# %% [markdown]
# A *stretch* is a piece of text; a shard has a list of stretches for each of eight steps. Above you
# see each rank's first stretch, and the lengths of its stretches in the first step. Each rank has 256
# letters in this step. Rank 3's stretches differ in length.
#
# The model reads letters and predicts the next letter. The model has two blocks of attention, in
# forty lines of `ddpkit/capstone/model.py`. The next cell prints the class of the model:

# %%
import inspect

print(inspect.getsource(TextModel))
print(f"{sum(p.numel() for p in TextModel().parameters()):,} parameters")

# %% [markdown]
# ## The given script
#
# The script has five faults. No fault makes the model worse; each fault makes the script slow. Read
# the script, but change nothing yet.
#
# A step's stretches go through the model in two micro-batches. The stretches of a micro-batch
# form a table, so the script pads the shorter stretches.


# %% tags=["answers"]
from torch.nn.utils.rnn import pad_sequence


def padded(stretches):
    """Return letters and next letters: a row for each stretch, padded to the longest stretch."""
    letters = pad_sequence([each[:-1] for each in stretches], batch_first=True)
    following = pad_sequence([each[1:] for each in stretches], batch_first=True, padding_value=-100)
    return letters, following  # -100: no letter to guess


# %%
def halves(stretches):
    """Cut the stretches into two micro-batches, in their order."""
    half = len(stretches) // 2
    return [stretches[:half], stretches[half:]]


def one_by_one(parameters):
    """Average the gradients of all ranks."""
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def report(model, stretches):
    """Let rank 0 compute the loss of 16 stretches."""
    if dist.get_rank() == 0:
        with torch.no_grad():
            model(*padded(2 * stretches))


# %%
def train_slowly(model, shard, cut=halves, once=False, reports=True):
    """Train `model` in place: a step for each list of stretches, in two micro-batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number, stretches in enumerate(shard):
        optimizer.zero_grad()
        first, second = cut(stretches)
        (model(*padded(first)) / 2).backward()
        if not once:
            one_by_one(model.parameters())
        (model(*padded(second)) / 2).backward()
        one_by_one(model.parameters())
        optimizer.step()
        if reports and number % 2 == 0:
            report(model, stretches)


# %% [markdown]
# **Predict:** if no rank ever waited, a step would take as long as rank 0 computes. How many times
# as long does a step of this script take?

# %% guess="times_as_long"
times_as_long = 2.6  # your guess

# %%
few = PerRank([shard[:4] for shard in task.shards])  # the first four steps of each rank
given = cluster.run(train_slowly, task.model(), few)


def ms_a_step(run):
    start, end = run.trace.window_of(0)
    return (end - start) / 1e6 / max(run.trace.steps, 1)


computes_ms = given.trace.breakdown()[0].compute_ns / 1e6 / 4
print(f"{ms_a_step(given):.0f} ms a step, in which rank 0 computes {computes_ms:.0f} ms")
beside(times_as_long, computes_ms and ms_a_step(given) / computes_ms, "times")

# %%
show(given, step=1)

# %% [markdown]
# **Notice:** rank 0 begins the step with a report, and rank 3 computes longer than ranks 1
# and 2: a third of rank 3's tables is padding. The other ranks wait meanwhile, and no byte moves.
# After each of the two backwards, there is a long row of small all-reduces.

# %%
print(given.traffic.table())
for rank, parts in given.trace.breakdown().items():
    compute, exposed = parts.compute_ns / 4e6, parts.exposed_ns / 4e6
    print(f"rank {rank}: {compute:4.0f} ms of compute a step, {exposed:4.0f} ms of waiting")

# %% [markdown]
# ## Six words
#
# A colleague gives you a trace of an unknown run. Which fault should you correct first? Look at the
# rank with the least exposed communication (`exposed_ns`): all other ranks wait for this rank, so
# the time of this rank is the time of the step. Cut this time into six parts:

# %% [markdown]
# - **compute**, the usual compute time of the ranks, and **straggler**, the rank's additional
#   compute time;
# - **input**, the time of spans with the name `input`, and **idle**, the time without any span;
# - two parts of the exposed communication: **latency**, the fixed time of each all-reduce, and
#   **bandwidth**, the rest.

# %% [markdown]
# How much time does an all-reduce without data take? Take the shortest all-reduce of the trace, and
# count from `ready_ns`, when all ranks have started the all-reduce. An all-reduce that no rank waits
# for (`blocked_ns` is None) does not make the step longer.
#
# `trace.breakdown()[rank]` has `compute_ns` (all spans but communication, so `input` spans too),
# `exposed_ns` and `idle_ns`. `trace.of(rank)` has the spans.


# %% exercise="bottleneck"
def bottleneck(trace) -> str:
    """Name the largest of the six times of the rank with the least exposed communication.

    The names are "compute", "straggler", "input", "idle", "latency" and "bandwidth". The usual
    compute time is the lower median of all ranks. Spans with the name "input" are not compute. The
    latency is the time of the shortest all_reduce, once for each all_reduce that the rank waited
    for; it is 0 if there is no all_reduce.
    """
    # BEGIN SOLUTION
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
    # END SOLUTION


# %% check="bottleneck"
check(bottleneck)

# %%
if given.trace.spans:
    print("the given script:", bottleneck(given.trace))

# %% [markdown]
# ## Three findings, with numbers
#
# Before you change a line, write down the cost of three of the five faults. Look at the picture and
# the numbers above, and **predict** how many ms a step each change saves, if you make only that
# change:
#
# 1. the stretches of a micro-batch are equally long (`even`, below);
# 2. the ranks average gradients once a step, not after each micro-batch;
# 3. rank 0 reports nothing.

# %% [markdown]
# How many ms a step do changes 1 and 3 save together?

# %% guess="even_ms"
even_ms = 35  # your prediction, in ms a step

# %% guess="once_ms"
once_ms = 78  # your prediction, in ms a step

# %% guess="silent_ms"
silent_ms = 15  # your prediction, in ms a step

# %% guess="both_ms"
both_ms = 65  # your prediction, in ms a step


# %%
def even(stretches):
    """Cut into two micro-batches of 128 letters: short stretches, and long stretches if any."""
    lengths = {len(each) for each in stretches}
    if len(lengths) == 1:
        return halves(stretches)
    return [[each for each in stretches if len(each) == length] for length in sorted(lengths)]


# %%
def saved_ms(**mended):
    run = cluster.run(train_slowly, task.model(), few, **mended)
    return ms_a_step(given) - ms_a_step(run)


beside(even_ms, saved_ms(cut=even), "ms: equal lengths")
beside(once_ms, saved_ms(once=True), "ms: once a step")
beside(silent_ms, saved_ms(reports=False), "ms: no reports")
beside(both_ms, saved_ms(cut=even, reports=False), "ms: equal lengths and no reports")

# %% [markdown]
# **Notice:** which of your predictions had the largest error? Two changes together can save
# more time than the sum of both savings. While rank 0 reports, rank 3 computes its padding. If you
# correct only one of these two faults, the ranks still wait because of the other fault.
#
# Two faults are left: the script all-reduces one parameter at a time, and sends four bytes for each
# number over the thin cable.

# %% [markdown]
# ## Your turn: train_fast
#
# Now write your own training. The training must take the same optimizer steps, and arrive at the
# same model. You decide everything else: the micro-batches, and the messages and their times. You
# may use your `DistributedDataParallel`, ZeRO, slices or stages.

# %% [markdown]
# These are the rules:
#
# - `train_fast` trains the given model in place, and all ranks end with the same model;
# - for each list of stretches, AdamW takes one step with a rate of 0.01, with the mean gradient of
#   all letters of all ranks;
# - torch does all computation, in the main thread. torch's own `DistributedDataParallel` and
#   callbacks get no points, because the kit cannot compute the time of their waits. You may use your
#   class of lab 06.

# %% [markdown]
# The kit judges your training by the model that you have trained. From the same start, the kit trains
# a second model, in one process with the text of all ranks. The distance between the parameters of
# the two models must be at most 6 % of the distance from the start to the kit's model. Sums with
# fewer bits, such as bfloat16, are accurate enough.

# %% [markdown]
# The kit computes the time from the actions of the ranks, and uses no clock. Each check has a
# different language. A correct training gets 4 points if it is a tenth faster than the given script.
# It gets 2 more points if it is 1.5 times as fast, and 2 more if it is 1.8 times as fast. The last 2
# points are for a training that is 2.1 times as fast and holds little memory.

# %%
print(f"given script {GIVEN_MS:,.0f} ms, floor {floor_ms():,.0f} ms, memory {MEMORY / 1e6:.0f} MB")


# %% exercise="train_fast"
def train_fast(model, shard) -> None:
    """Train `model` in place on all ranks: take the steps of the given script in less time.

    model  a TextModel, the same on all ranks; `model(letters, following)` is the mean loss
    shard  this rank's text: a list of stretches for each step, each int64 (length + 1,)
    """
    # BEGIN SOLUTION
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
    # END SOLUTION


# %% check="train_fast"
check(train_fast)

# %% [markdown]
# ## Your score
#
# `score` runs your training with two languages, and shows the worse of two losses. Both losses are
# measured on new texts in all four dialects: no rank has trained on these texts.

# %% [markdown]
# The table shows the time, the bytes that moved, and the most memory that a rank held. A training
# that sends half the bytes may be faster on a different cluster. A star marks a row that no other
# row beats. To beat a row, a different row must be as good in time, bytes and memory, and better in
# one of them.
#
# **Predict:** how many times as fast as the given script is your training?

# %% guess="times_as_fast"
times_as_fast = 2.4  # your prediction

# %%
mine = score(train_fast, "mine")
beside(times_as_fast, GIVEN_MS / mine.ms if not mine.why else None, "times")

# %% [markdown]
# **Notice:** the floor is a lower bound: the matrix products of all letters, divided by four
# ranks, without communication. The loss is near the language's entropy, and is the same as the loss
# of the given script. Times that differ by less than 3 % count as equal.

# %%
show_costs()

# %% [markdown]
# **Notice:** time grows to the right, bytes grow upwards, and a larger dot needs more
# memory. A dot is filled if no other dot beats it. The filled dots are the **Pareto front**.
#
# Try a different training, and give the training a name: `score(train_fast, "sharded")`. The table
# stays in `.ddpkit/capstone.json`.

# %% [markdown]
# ## What now?
#
# Look at the trace of your training: what is the bottleneck now?


# %%
run = cluster.run(train_fast, task.model(), few)
if run.trace.spans:
    print("mine:", bottleneck(run.trace))

# %%
show(run, step=1)

# %% [markdown]
# **In words:** which fault cost the most time, and how did you see this fault? Which part would you
# change next, and how many ms can this change save at most?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## The way out
#
# This program trains a small model in plain torch. torch's own `DistributedDataParallel` averages
# the gradients, and can send them while the backward still computes.
#
# ```python
# import torch, torch.distributed as dist
# from pydoc_data.topics import topics
# from torch.nn.parallel import DistributedDataParallel
# from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
#
# dist.init_process_group("gloo")
# text = torch.tensor(list("\n".join(topics.values()).encode("ascii", "replace")))
# generator = torch.Generator().manual_seed(dist.get_rank())
# layers = [torch.nn.Embedding(128, 64), torch.nn.Flatten(), torch.nn.Linear(512, 128)]
# model = DistributedDataParallel(torch.nn.Sequential(*layers))  # guesses from 8 letters
# model.register_comm_hook(None, fp16_compress_hook)
# optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
# for step in range(30):
#     at = torch.randint(len(text) - 9, (64, 1), generator=generator) + torch.arange(9)
#     loss = torch.nn.functional.cross_entropy(model(text[at][:, :8]), text[at][:, 8])
#     optimizer.zero_grad(), loss.backward(), optimizer.step()
# print("rank", dist.get_rank(), "loss", loss.item())
# dist.destroy_process_group()
# ```

# %% [markdown]
# `ddpkit script 15` writes this lab, with your `train_fast`, as a program for torchrun on your own
# machines. There `score` shows the real time of a run. These real times get no place in the table,
# because times differ from machine to machine.

# %% [markdown]
# ## In this lab you have
#
# - named a bottleneck from a trace, by one of six words;
# - predicted the cost of faults before you mended them, and seen how far off you were;
# - trained the given script's model on four ranks, in less than half of the script's time;
# - got a score that anyone can compute again.
#
# **Next:** use the kit on your own work: `ddpkit run` shows such a trace for a script of your own.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 15_capstone.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
