# ---
# jupyter:
#   ddpkit:
#     builds: a token ring; a deadlock, read and repaired
#     minutes: 30
#     needs: Python functions
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
# # 00 · One program, many ranks
#
# **You will build** a token that travels around a ring of processes, and mend a program in which
# everybody waits for everybody.
#
# **You need** some Python. No GPU and no network. About 30 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, check, show

# %% [markdown]
# ## Four ranks
#
# A *cluster* of four runs your function in four processes at once. Each process is called a
# **rank**. They talk through
# [`torch.distributed`](https://docs.pytorch.org/docs/stable/distributed.html), which leaves the bytes
# to a *backend*: to **gloo** between processors, as here, to **NCCL** between GPUs of NVIDIA.

# %%
cluster = Cluster(4)
cluster


# %%
def square():
    return dist.get_rank() ** 2


cluster.run(square).results

# %% [markdown]
# All four ran the same function. Only `dist.get_rank()` told them apart: it is 0, 1, 2 or 3, and
# `dist.get_world_size()` is 4 for all of them. One program, many ranks: that is how nearly all
# distributed training is written.
#
# What a rank prints comes back with its number.


# %%
def greet():
    print(f"I am rank {dist.get_rank()} of {dist.get_world_size()}.")


run = cluster.run(greet)

# %% [markdown]
# ## Ranks share nothing
#
# Below, four ranks each add 1 to `counter`.
#
# **Predict:** what will the four ranks return, and what will `counter` be in the notebook
# afterwards? Write both down, then run the cell.

# %%
counter = 0


def count():
    global counter
    counter += 1
    return counter


print("ranks:", cluster.run(count).results, " notebook:", counter)

# %% [markdown]
# Each rank is a process with a memory of its own. It got a *copy* of your function and of the
# variables that it uses, added 1 to its copy, and went away. Nothing is shared: to know what
# another rank knows, a rank has to be sent a message.

# %% [markdown]
# ## Push and pull
#
# `dist.send(x, dst=1)` pushes a tensor to rank 1. `dist.recv(x, src=0)` waits until a tensor
# comes from rank 0, and writes it into `x`, which must have the right shape and dtype already.
#
# **Predict:** what do the four ranks return?


# %%
def pass_on():
    x = torch.zeros(1)
    if dist.get_rank() == 0:
        x += 42
        dist.send(x, dst=1)
    elif dist.get_rank() == 1:
        dist.recv(x, src=0)
    return x.item()


run = cluster.run(pass_on)
run.results

# %% [markdown]
# One message, from rank 0 to rank 1. The others have not heard of it. The kit has counted: one
# float32 number is 4 bytes.

# %%
print(run.traffic)

# %% [markdown]
# ## Your turn: a token goes around
#
# Rank 0 has a token. It adds 1 and sends it to rank 1, which adds 2 and sends it to rank 2, and
# so on. The last rank sends it back to rank 0.
#
# **Predict:** the token starts as 0 on four ranks. What comes back to rank 0? And how many
# messages does it take?


# %% exercise="token_ring"
def token_ring(token: torch.Tensor) -> torch.Tensor:
    """Send `token` once around the ring of all ranks, each adding its rank + 1 to it.

    By dist.send and dist.recv alone, from rank r to rank r + 1. Every rank is called with an equal
    tensor, and leaves it as it is. Rank 0 starts, and returns the token that comes back to it; any
    other rank returns what it passed on.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=rank - 1)
    token += rank + 1
    if world_size > 1:
        dist.send(token, dst=(rank + 1) % world_size)
        if rank == 0:
            dist.recv(token, src=world_size - 1)
    return token
    # END SOLUTION


# %% check="token_ring"
check(token_ring)

# %% [markdown]
# <details><summary>An answer</summary>
#
# 10 comes back: 1 + 2 + 3 + 4. It takes four messages, one from each rank.
#
# </details>

# %% [markdown]
# ## The first timeline
#
# Inside a laptop messages are too fast to watch. So the next cluster is *emulated*: real ranks, each
# with the time of a machine of its own, on a link of 1 Gbit/s. There a message of 4 MB takes 32.2 ms.
# (1 MB is 1,000,000 bytes in all labs and pictures; one exception, torch's bucket caps, comes in lab 05.)
#
# The kit draws a row for each rank; time runs to the right.

# %% [markdown]
# **Predict:** what shape will the four rows make, when 4 MB go around? How long does it take? Write it
# in place of the dots.

# %% guess="token_ms"
token_ms = 4 * 32.2  # your prediction, in ms

# %%
slow = Cluster(4, link="1 Gbit/s, 200 us")


def slow_token():
    return token_ring(torch.zeros(1_000_000))


run = slow.run(slow_token)
show(run)
beside(token_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **What to notice:** a staircase. A faint bar is a rank that waits for its peer, a solid bar is a
# message on its way; where a row has no bar any more, the rank is done. One message moves at a time,
# between two ranks, four messages in a row. The two other ranks wait, or are done.

# %% [markdown]
# What is beyond 4 × 32.2 ms is compute, which no bar shows here: ranks make tensors and add to them. A
# ring can do better: in lab 03 all ranks will send at the same time.

# %% [markdown]
# ## When a rank fails
#
# Sooner or later a rank raises an exception. The next cell fails on purpose: `expect_error=True`
# prints what you would see, and lets the notebook go on.


# %%
def divide():
    share = 12 / (2 - dist.get_rank())
    dist.barrier()  # wait here until all ranks have come
    return share


run = cluster.run(divide, expect_error=True)

# %% [markdown]
# **What to notice:** the message names the rank and its line in your cell. The three others were
# waiting in `barrier()` for a rank that would never come. The kit ended them: a rank alone is of
# no use.
#
# The same cluster works at once again. Each run starts new processes.

# %%
cluster.run(square).results


# %% [markdown]
# A rank can also die without a word: the system kills it when memory runs out, or it crashes in C++.
# Then it cannot say which line it was in. The kit says what it knows: the function.


# %%
def vanish():
    import os, signal

    if dist.get_rank() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


run = cluster.run(vanish, expect_error=True)

# %% [markdown]
# ## When everybody waits
#
# Two ranks want to swap their numbers. Each waits for the other's number, and then sends its own.
#
# **Predict:** what happens?


# %%
def after_you():
    mine, theirs = torch.ones(1), torch.zeros(1)
    dist.recv(theirs, src=1 - dist.get_rank())
    dist.send(mine, dst=1 - dist.get_rank())


run = Cluster(2).run(after_you, expect_error=True)

# %% [markdown]
# A **deadlock**. No error was raised and no processor was used: on a real cluster such a job costs
# money all night and does nothing. Read the explanation from the top: who waits, in which call,
# in which line, and why it cannot end.
#
# Does it help to send first?


# %%
def me_first():
    mine, theirs = torch.ones(1), torch.zeros(1)
    dist.send(mine, dst=1 - dist.get_rank())
    dist.recv(theirs, src=1 - dist.get_rank())


run = Cluster(2).run(me_first, expect_error=True)

# %% [markdown]
# It does not: here, with gloo, `send` returns only when the other side has begun to receive. With NCCL
# the call returns at once, but the GPU's queue of work stands still until the other side receives: the
# deadlock is the same.

# %% [markdown]
# Some systems keep a small message in a buffer and let `send` return early
# ([MPI](https://www.mpi-forum.org/docs/) leaves it to each system). A program that counts on such a
# buffer works with 10 numbers and hangs with 10 million.
#
# So write every program as if each `send` waits for its `recv`.

# %% [markdown]
# ## Your turn: who waits for whom?
#
# Now all ranks, in a ring: each sends its tensor to the right, rank `r` to rank `r + 1`, the last
# to rank 0, and returns what it gets from the left. Use `dist.send` and `dist.recv`.
#
# **Before you write:** on paper, with three ranks: who sends first, who receives first?


# %% exercise="who_waits"
def who_waits(x: torch.Tensor) -> torch.Tensor:
    """Send `x` to the rank on the right, and return the tensor that came from the left.

    By dist.send and dist.recv alone. It must not count on buffers: a send waits for its recv.
    `x` is left as it is.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    y = x.clone()
    if world_size == 1:
        return y
    if rank % 2 == 0:
        dist.send(x, dst=right)
        dist.recv(y, src=left)
    else:
        dist.recv(y, src=left)
        dist.send(x, dst=right)
    return y
    # END SOLUTION


# %% check="who_waits"
check(who_waits)

# %% [markdown]
# **Predict:** around the ring the token took four times 32.2 ms. How long does this shift take?

# %% guess="shift_ms"
shift_ms = 2 * 32.2  # your prediction, in ms


# %%
def slow_shift():
    return who_waits(torch.ones(1_000_000)).shape


run = slow.run(slow_shift)
show(run)
beside(shift_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **What to notice:** no staircase. The even ranks send while the odd ones receive, then the other
# way round. It takes two rounds, however many ranks there are, as long as their number is even. (Is your picture a staircase? Then one
# rank receives first and all others send first: that ends too, but only one message moves at a time.)
#
# With an odd number of ranks it takes a third round. Why?

# %% [markdown]
# <details><summary>An answer</summary>
#
# With five ranks, ranks 4 and 0 are neighbours, and both are even: both send first. So the message of
# rank 4 waits until rank 0 has sent its own. That is the second round. Only then does rank 4 receive
# from rank 3: the third.
#
# </details>

# %% [markdown]
# **In words:** your token took twice as long as your shift, with as many messages. How many messages were under way at the same moment in each, and what did the other ranks do meanwhile? Use the numbers of your two timelines.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## The way out
#
# `Cluster` has started and joined the ranks for you. Without the kit, in a file `hello.py`:
#
# ```python
# import torch, torch.distributed as dist
#
# dist.init_process_group("gloo")  # "nccl" on GPUs, with one for each rank
# rank, ranks = dist.get_rank(), dist.get_world_size()
# print(f"rank {rank} of {ranks} is here")
# number = torch.tensor([float(rank)])
# if rank == 0:
#     dist.send(number, dst=ranks - 1)
# if rank == ranks - 1:
#     dist.recv(number, src=0)
#     print(f"rank {rank} has got {number.item()}")
# dist.destroy_process_group()
# ```
#
# In a terminal: `torchrun --nproc-per-node 4 hello.py`
# ([torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) starts the ranks). `ddpkit script 00` makes such a script of
# this whole lab, and `ddpkit run -n 4 hello.py` runs one on the kit's ranks, which explain a
# deadlock.

# %% [markdown]
# ## In this lab you have
#
# - run one program on many ranks, which share nothing but messages;
# - sent a token around a ring, and seen on a timeline who waits;
# - read what a failed, a killed and a deadlocked run say;
# - broken a cycle of waiting, without counting on buffers.
#
# **Next:** lab 01 leaves the ranks aside and builds what they will compute: SGD on real data.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 00_ranks.ipynb` in a terminal. It
# goes the grader's way, with inputs of its own, and says what the grader will.
