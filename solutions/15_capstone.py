# ---
# jupyter:
#   ddpkit:
#     builds: a fast training of a small transformer, from a slow one and its trace, honestly scored
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
# four ranks. The script is correct, and slow. You find the reasons in its trace, make it fast, and
# get a score.
#
# **You need** labs 05 and 06; all others help. About 90 minutes, and as long as you like.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check, show

# %%
from statistics import median_low
from ddpkit.capstone import GIVEN_MS, LINK, MACHINE, TARGET, TextTask, TextModel, floor_ms, score

flatten = carry("flatten")
unflatten = carry("unflatten")

# %% [markdown]
# ## The cluster
#
# There are two hosts, each with two small computers. Inside a host messages are fast. Between the
# hosts is one thin cable, which both computers of a host share. Compute is counted, so your numbers
# are the same as on every other laptop.

# %%
print("machine:", MACHINE)
print("inside a host:", LINK["inside"], "   between the hosts:", LINK["between"])
cluster = Cluster(4, machine=MACHINE, link=LINK)

# %% [markdown]
# ## The text and the model
#
# The text comes from Python's own `help()`. A `TextTask` holds back a tenth of the text, and
# exchanges the letters: `e` may be `%` in your text. So a model trained on a different text knows
# nothing of your text.

# %%
from ddpkit.data import load_text

train_text, held_out = load_text()
print(bytes(train_text[:200]).decode())
print(f"{len(train_text):,} letters to train on, {len(held_out):,} are held out")

# %% [markdown]
# The model reads letters and guesses the next letter. The model has two blocks of attention, in
# forty lines of `ddpkit/capstone/model.py`. Here is its class:

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
# A batch is some stretches of text. The stretches differ in length, so the script pads the shorter
# stretches.


# %%
def ragged(text, size, generator):
    """Letters, and those that follow: `size` stretches. The last rank has a long one."""
    lengths = [32] * size
    if dist.get_rank() == dist.get_world_size() - 1:
        lengths[0] = 64
    letters = torch.zeros(size, max(lengths), dtype=torch.long)
    following = torch.full_like(letters, -100)  # -100: nothing to guess here
    for i, n in enumerate(lengths):
        start = int(torch.randint(len(text) - n, (), generator=generator))
        letters[i, :n], following[i, :n] = text[start : start + n], text[start + 1 : start + n + 1]
    return letters, following


# %%
def one_by_one(parameters):
    """Average the gradients of all ranks."""
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def report(model, text, generator):
    """Rank 0 computes the loss of 32 stretches."""
    if dist.get_rank() == 0:
        with torch.no_grad():
            model(*even(text, 32, generator))
    dist.barrier()


# %% tags=["answers"]
def even(text, size, generator):
    """Letters, and those that follow: `size` stretches of 32."""
    starts = torch.randint(len(text) - 33, (size,), generator=generator).tolist()
    stretches = torch.stack([text[start : start + 33] for start in starts])
    return stretches[:, :-1], stretches[:, 1:]


# %%
def train_slowly(model, text, steps=20, batch=ragged, once=False, reports=True):
    """Train `model` in place: 20 steps of two micro-batches on each rank."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.006)
    for number in range(steps):
        optimizer.zero_grad()
        for micro in range(2):
            (model(*batch(text, 4, generator)) / 2).backward()
            if micro == 1 or not once:
                one_by_one(model.parameters())
        optimizer.step()
        if reports and number % 4 == 1:
            report(model, text, generator)


# %% [markdown]
# **Predict:** if no rank ever waited, a step would take as long as rank 0 computes. How many times
# as long does a step of this script take?

# %% guess="times_as_long"
times_as_long = 2.3  # your guess

# %%
task = TextTask(seed=1)
text = torch.from_numpy(task.text).long()
given = cluster.run(train_slowly, task.model(), text, steps=4)


def ms_a_step(run):
    start, end = run.trace.window_of(0)
    return (end - start) / 1e6 / max(run.trace.steps, 1)


computes_ms = given.trace.breakdown()[0].compute_ns / 1e6 / 4
print(f"{ms_a_step(given):.0f} ms a step, in which rank 0 computes {computes_ms:.0f} ms")
beside(times_as_long, computes_ms and ms_a_step(given) / computes_ms, "times")

# %%
show(given, step=2)

# %% [markdown]
# **What to notice:** the step begins with a report, and three ranks wait for the report. Then rank 3
# computes twice as long as ranks 1 and 2, and again the other ranks wait: no byte moves. After each
# of the two backwards comes a long row of small all-reduces.

# %%
print(given.traffic.table())
for rank, parts in given.trace.breakdown().items():
    compute, exposed = parts.compute_ns / 4e6, parts.exposed_ns / 4e6
    print(f"rank {rank}: {compute:4.0f} ms of compute a step, {exposed:4.0f} ms of waiting")

# %% [markdown]
# ## Six words
#
# A colleague gives you a trace of an unknown run. Which fault should you mend first? One rank waits
# least for its peers: all other ranks wait for that rank. Its time is the time of the step. Cut this
# time into six parts:

# %% [markdown]
# - **compute**, the usual compute time of the ranks, and **straggler**, the compute time beyond;
# - **input**: spans with the name `input`, and **idle**: no span at all;
# - exposed communication: **latency**, the fixed cost of each all-reduce, and **bandwidth**, the
#   rest.

# %% [markdown]
# How much time does an all-reduce without data take? The shortest all-reduce of the trace shows this
# time, counted from `ready_ns`, when all ranks are there. An all-reduce that no rank waits for
# (`blocked_ns` is None) costs the step nothing.
#
# `trace.breakdown()[rank]` has `compute_ns` (all spans but communication, so `input` spans too),
# `exposed_ns` and `idle_ns`. `trace.of(rank)` has the spans.


# %% exercise="bottleneck"
def bottleneck(trace) -> str:
    """The largest of a step's six times, those of the rank that waits least for its peers.

    "compute", "straggler", "input", "idle", "latency" or "bandwidth". What ranks usually compute is
    the lower median of all ranks. Spans called "input" are no compute. Latency: the time of the
    shortest all_reduce, for each all_reduce that the rank waited for; 0 where there is none.
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
# 1. all stretches are equally long;
# 2. the ranks average gradients once a step, not after each micro-batch;
# 3. rank 0 reports nothing.

# %% guess="even_ms"
even_ms = 105  # your prediction, in ms a step

# %% guess="once_ms"
once_ms = 35  # your prediction, in ms a step

# %% guess="silent_ms"
silent_ms = 30  # your prediction, in ms a step


# %%
def saved_ms(**mended):
    run = cluster.run(train_slowly, task.model(), text, steps=4, **mended)
    return ms_a_step(given) - ms_a_step(run)


beside(even_ms, saved_ms(batch=even), "ms: equal lengths")
beside(once_ms, saved_ms(once=True), "ms: once a step")
beside(silent_ms, saved_ms(reports=False), "ms: no reports")

# %% [markdown]
# **What to notice:** which of your numbers was farthest off? Savings do not add up: while all ranks
# wait for rank 3, their own delays hardly matter.
#
# Two faults are left: the script all-reduces one parameter at a time, and sends four bytes for each
# number over the thin cable.

# %% [markdown]
# ## Your turn: train_fast
#
# Now write your own training. You choose everything: the batch, the learning rate, the optimizer,
# the number of steps, the messages and their times; your `DistributedDataParallel`, ZeRO, slices,
# stages.

# %% [markdown]
# These are the rules:
#
# - `train_fast` trains the whole given model in place, from the given weights, and the model is the
#   same on all ranks afterwards;
# - all four ranks train, on the given text, by gradients: letter counts written into the weights are
#   no training;
# - torch computes, in the main thread. torch's own `DistributedDataParallel` and callbacks wait
#   where the kit cannot compute their time again, and get no points; your class of lab 06 does.

# %% [markdown]
# How is your training judged? The kit computes the held-out loss itself, and this loss has to come
# below the target. The kit adds up the time from the actions of the ranks, and believes neither your
# loss nor a clock. Each check has a different text. A correct training gets 4 points if it is a
# tenth faster than the given script, and 2 more each for 1.5, 2.5 and 4 times as fast.

# %%
print(f"target {TARGET}, given script {GIVEN_MS:,.0f} ms, floor {floor_ms():,.0f} ms")


# %% exercise="train_fast"
def train_fast(model, text) -> None:
    """Train `model` in place on all ranks, until its held-out loss is below the target.

    model  a TextModel, the same on all ranks; `model(letters, following)` is the mean loss
    text   the letters to train on, int64 (n,), the same on all ranks
    """
    # BEGIN SOLUTION
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
    # END SOLUTION


# %% check="train_fast"
check(train_fast)

# %% [markdown]
# ## Your score
#
# The score is the median of three texts, with the spread of times and the *worst* loss. Beside the
# time stands the cost: the bytes that moved, and the most memory that a rank held. Time alone says
# little: a training with half the bytes may win on a different cluster.
#
# **Predict:** how many times as fast as the given script is your training?

# %% guess="times_as_fast"
times_as_fast = 4  # your prediction

# %%
mine = score(train_fast, "mine")
beside(times_as_fast, GIVEN_MS / mine.ms if not mine.why else None, "times")

# %% [markdown]
# **What to notice:** the floor is a lower bound: the arithmetic of fewer stretches than any known
# training has needed, divided by four ranks, without communication. Of ten held-out tenths, the
# hardest costs 0.1 more loss than most: a margin below the target protects you when a check draws
# the hardest tenth. Scores less than 3 % apart count as equal.
#
# Try a different training, and give the training a name: `score(train_fast, "small batches")`. The
# table stays in `.ddpkit/capstone.json`.

# %% [markdown]
# ## What now?
#
# Look at the trace of your training: what is the bottleneck now?


# %%
def few_steps():
    train_fast(task.model(), text)


run = cluster.run(few_steps)
if run.trace.spans:
    print("mine:", bottleneck(run.trace))

# %%
show(run, step=2)

# %% [markdown]
# **In words:** which fault cost most, and how did you see it? What would you change next, and how
# much can this change save at most?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## The way out
#
# The same in plain torch, with torch's own class, which may also hide the bytes below backward.
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
# machines. There `score` shows the real time of a run. The real time is not ranked: times differ
# from machine to machine.

# %% [markdown]
# ## In this lab you have
#
# - named a bottleneck from a trace, by one of six words;
# - predicted the cost of faults before you mended them, and seen how far off you were;
# - trained a transformer on four ranks, several times as fast as the given script;
# - got a score that anyone can compute again.
#
# **Next:** use the kit on your own work: `ddpkit run` shows the same for a script of your own.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 15_capstone.ipynb` in a terminal. It
# goes the grader's way, with inputs of its own, and says what the grader will.
