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
# **You will build** a fast training. A script is given that trains a small transformer on four ranks.
# It is right, and it is slow. You find out why from its trace, mend it, and get a score.
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
# Two hosts, each with two small computers. Inside a host messages are fast. Between the hosts is one
# thin cable, which both computers of a host share. Compute is counted, so your numbers are those of
# every other laptop.

# %%
print("machine:", MACHINE)
print("inside a host:", LINK["inside"], "   between the hosts:", LINK["between"])
cluster = Cluster(4, machine=MACHINE, link=LINK)

# %% [markdown]
# ## The text and the model
#
# The text is that of Python's own `help()`. A `TextTask` holds back a tenth of it, and exchanges the
# letters: `e` may be `%` in yours. So a model that has learned another text knows nothing of this one.

# %%
from ddpkit.data import load_text

train_text, held_out = load_text()
print(bytes(train_text[:200]).decode())
print(f"{len(train_text):,} letters to train on, {len(held_out):,} are held out")

# %% [markdown]
# The model reads letters and guesses the next one: two blocks of attention, in forty lines
# of `ddpkit/capstone/model.py`. Its class:

# %%
import inspect

print(inspect.getsource(TextModel))
print(f"{sum(p.numel() for p in TextModel().parameters()):,} parameters")

# %% [markdown]
# ## The given script
#
# Five things are wrong with it. None of them makes the model worse; each makes it slow. Read it, and do
# not mend anything yet.
#
# A batch is some stretches of text. Not all are equally long, so the shorter ones are padded.


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
# **Predict:** if nobody ever waited for anything, a step would take as long as rank 0 computes. How many
# times as long does a step of this script take?

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
# **What to notice:** the step begins with a report, for which three ranks wait. Then rank 3 computes
# twice as long as the others, and again they wait: no byte moves. After each of the two backwards
# comes a long row of small all-reduces.

# %%
print(given.traffic.table())
for rank, parts in given.trace.breakdown().items():
    compute, exposed = parts.compute_ns / 4e6, parts.exposed_ns / 4e6
    print(f"rank {rank}: {compute:4.0f} ms of compute a step, {exposed:4.0f} ms of waiting")

# %% [markdown]
# ## Six words
#
# Somebody gives you a trace of a run that you have never seen. What should be mended first? One rank
# waits least for its peers: all others wait for *it*. Its time is that of the step. Cut it into six:
#
# - **compute**, as long as the ranks usually do, and beyond that: **straggler**;
# - **input**: spans with the name `input`, and **idle**: no span at all;
# - exposed communication: **latency**, which each all-reduce costs, and **bandwidth**, the rest.

# %% [markdown]
# What does an all-reduce cost that carries nothing? The shortest one of the trace shows it, counted from
# `ready_ns`, when all ranks are there. One that nobody waits for (`blocked_ns` is None) costs the step
# nothing.
#
# `trace.breakdown()[rank]` has `compute_ns` (all spans but communication, so those called `input` too),
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
# Before you change a line, write down what three of the five faults cost. Look at the picture and the
# numbers above, and **predict** how many ms a step each one saves, if it alone is mended:
#
# 1. all stretches are equally long;
# 2. gradients are averaged once a step, not after each micro-batch;
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
# **What to notice:** which of your numbers was farthest off? Savings do not add up: while all wait for
# rank 3, it hardly matters what else they do.
#
# Two faults are left: a parameter at a time, and four bytes for each number on the thin cable.

# %% [markdown]
# ## Your turn: train_fast
#
# Now write your own. Everything is free: the batch, the learning rate, the optimizer, the number of
# steps, what moves and when; your `DistributedDataParallel`, ZeRO, slices, stages.

# %% [markdown]
# These are the rules:
#
# - the given model, all of it, is trained in place, from the given weights, and is the same on all ranks
#   afterwards;
# - all four ranks train, on the given text, by gradients: counts of letters, written into the weights,
#   are no training;
# - torch computes, in the main thread. Its own `DistributedDataParallel` and callbacks wait where their
#   time cannot be computed again, and get no points; your class of lab 06 does.

# %% [markdown]
# How is it judged? The kit computes the held-out loss itself, which has to come below the target, and
# adds up the time from what the ranks did: neither a loss nor a clock is believed. Each check has another
# text. Right and a tenth faster than given: 4 points; 2 more each for 1.5, 2.5 and 4 times as fast.

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
# The median of three texts, with the spread of times and the *worst* loss; and what it cost: bytes that
# moved, and the most memory that a rank held. Time alone says little: who needs half the bytes may win on
# another cluster.
#
# **Predict:** how many times as fast as the given script is yours?

# %% guess="times_as_fast"
times_as_fast = 4  # your prediction

# %%
mine = score(train_fast, "mine")
beside(times_as_fast, GIVEN_MS / mine.ms if not mine.why else None, "times")

# %% [markdown]
# **What to notice:** the floor is the arithmetic of fewer stretches than any training has needed, shared
# by four, with nothing between. Of ten held-out tenths the hardest costs 0.1 more than most: your margin
# below the target is what saves you when a check draws it. Scores less than 3 % apart are called equal.
#
# Try something else, and give it a name: `score(train_fast, "small batches")`. The table stays in
# `.ddpkit/capstone.json`.

# %% [markdown]
# ## What now?
#
# The trace of yours: what is the bottleneck now?


# %%
def few_steps():
    train_fast(task.model(), text)


run = cluster.run(few_steps)
if run.trace.spans:
    print("mine:", bottleneck(run.trace))

# %%
show(run, step=2)

# %% [markdown]
# **In words:** which fault cost most, and how did you see it? What would you change next, and what is the most that it can save?

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
# `ddpkit script 15` writes this lab, with your `train_fast`, as a program for torchrun on your own machines. There
# `score` shows the real time of a run. It is not ranked: other machines, other times.

# %% [markdown]
# ## In this lab you have
#
# - read a bottleneck from a trace, in one of six words;
# - said what faults cost before you mended them, and seen how far off you were;
# - trained a transformer on four ranks, several times as fast as the script that you were given;
# - got a score that nobody has to believe: it can be computed again.
#
# **Next:** take it along: `ddpkit run` shows the same of a script of your own.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 15_capstone.ipynb` in a terminal. It
# goes the grader's way, with inputs of its own, and says what the grader will.
