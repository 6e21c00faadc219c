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
# **You will build** a token that travels around a ring of processes, and mend a program in which all
# ranks wait for each other.
#
# **You need** some Python. No GPU and no network. About 30 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, check, show

# %% [markdown]
# ## Four ranks
#
# A *cluster* of four runs your function in four processes at once. Each process is called a **rank**.
# The ranks talk through [`torch.distributed`](https://docs.pytorch.org/docs/stable/distributed.html).
# A *backend* moves the bytes: **gloo** between CPUs, as here, or **NCCL** between NVIDIA GPUs.

# %%
cluster = Cluster(4)
cluster


# %%
def square():
    return dist.get_rank() ** 2


cluster.run(square).results

# %% [markdown]
# All four ranks ran the same function. Only `dist.get_rank()` differed: it returned 0, 1, 2 or 3, and
# `dist.get_world_size()` returned 4 on every rank. Nearly all distributed training is written in this
# way: one program, many ranks.
#
# If a rank prints something, the notebook shows the text with the number of the rank.


# %%
def greet():
    print(f"I am rank {dist.get_rank()} of {dist.get_world_size()}.")


run = cluster.run(greet)

# %% [markdown]
# ## Ranks share nothing
#
# Below, four ranks each add 1 to `counter`.
#
# **Predict:** which numbers will the four ranks return, and which value will `counter` have in the
# notebook afterwards? Write both down, then run the cell.

# %%
counter = 0


def count():
    global counter
    counter += 1
    return counter


print("ranks:", cluster.run(count).results, " notebook:", counter)

# %% [markdown]
# Each rank is a process with a memory of its own. Each rank received a *copy* of your function and of
# the function's variables, added 1 to its own copy of `counter`, and ended. Ranks share nothing: data
# of one rank reaches another rank only in a message.

# %% [markdown]
# ## Push and pull
#
# `dist.send(x, dst=1)` pushes a tensor to rank 1. `dist.recv(x, src=0)` waits until a tensor comes
# from rank 0, and writes this tensor into `x`; so `x` must have the right shape and dtype beforehand.
#
# **Predict:** which values do the four ranks return?


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
# There was one message, from rank 0 to rank 1. Ranks 2 and 3 got nothing. ddpkit, the kit that runs
# these labs, has counted the bytes: one float32 number has 4 bytes.

# %%
print(run.traffic)

# %% [markdown]
# ## Your turn: a token goes around
#
# Rank 0 has a token, which is a number. Rank 0 adds 1 and sends the token to rank 1, rank 1 adds 2
# and sends the token to rank 2, and so on. The last rank sends the token back to rank 0.
#
# **Predict:** the token starts as 0 on four ranks. Which number comes back to rank 0? And how many
# messages does the token need?


# %% exercise="token_ring"
def token_ring(token: torch.Tensor) -> torch.Tensor:
    """Send `token` once around the ring of all ranks, and add each rank's number + 1 on the way.

    Uses only dist.send and dist.recv, from rank r to rank r + 1. All ranks are called with equal
    tensors, and leave their tensors unchanged. Rank 0 starts, and returns the token that comes
    back; every other rank returns the token that it passed on.
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
# 10 comes back: 1 + 2 + 3 + 4. The token needs four messages, one from each rank.
#
# </details>

# %% [markdown]
# ## The first timeline
#
# Inside a laptop, messages are too fast to watch. So the next cluster is *emulated*: its ranks are
# real, but their clocks show the time of four machines with links of 1 Gbit/s. On such a link, a
# message of 4 MB takes 32.2 ms: 0.2 ms until the first byte arrives, and 32 ms for all bytes. (1 MB
# is 1,000,000 bytes in all labs, except for torch's bucket caps in lab 05.)

# %% [markdown]
# The kit draws a row for each rank; time runs to the right.
#
# **Predict:** a token of 4 MB travels around the ring. Which shape will the bars in the four rows
# form? How long will the whole trip take? Write the time in place of the dots.

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
# **Notice:** the bars form a staircase. A faint bar shows a rank that waits for its peer,
# and a solid bar shows a message on its way; a rank is done where its row has no more bars. The four
# messages move one after the other, each between two ranks. Meanwhile the two other ranks wait, or
# are done.

# %% [markdown]
# The run takes a little longer than 4 × 32.2 ms, because the ranks also compute: they make tensors
# and add numbers to them. No bar shows this compute here. A ring can be faster: in lab 03, all ranks
# of a ring will send at the same time.

# %% [markdown]
# ## When a rank fails
#
# Sooner or later a rank raises an exception. The next cell fails on purpose: `expect_error=True`
# prints the error instead of raising it, and the notebook goes on.


# %%
def divide():
    share = 12 / (2 - dist.get_rank())
    dist.barrier()  # wait here until all ranks have come
    return share


run = cluster.run(divide, expect_error=True)

# %% [markdown]
# **Notice:** the message names the failed rank and the line in your cell. The three other
# ranks were waiting in `barrier()` for the failed rank, which would never come. So the kit ended
# these three ranks too.
#
# You can use the same cluster again at once, because each run starts new processes.

# %%
cluster.run(square).results


# %% [markdown]
# A rank can also die without an exception: the system kills the rank when memory runs out, or the
# rank crashes in C++. A killed rank cannot report its line, so the kit's message names only the
# function.


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
# Two ranks want to swap their numbers. Each rank first waits for the number of the other rank, and
# then sends its own number.
#
# **Predict:** what happens?


# %%
def after_you():
    mine, theirs = torch.ones(1), torch.zeros(1)
    dist.recv(theirs, src=1 - dist.get_rank())
    dist.send(mine, dst=1 - dist.get_rank())


run = Cluster(2).run(after_you, expect_error=True)

# %% [markdown]
# This is a **deadlock**. Neither rank raised an error, and neither used CPU time: on a real cluster,
# such a job costs money all night and does nothing. Read the explanation from the top: which ranks
# wait, in which call, in which line, and why the waiting cannot end.
#
# Does it help if both ranks send first?


# %%
def me_first():
    mine, theirs = torch.ones(1), torch.zeros(1)
    dist.send(mine, dst=1 - dist.get_rank())
    dist.recv(theirs, src=1 - dist.get_rank())


run = Cluster(2).run(me_first, expect_error=True)

# %% [markdown]
# Sending first does not help: here, with gloo, `send` returns only when the other rank has begun to
# receive. With NCCL, the call returns at once, but the GPU's queue of work stands still until the
# other rank receives, so the deadlock is the same.

# %% [markdown]
# Some systems keep a small message in a buffer and let `send` return early
# ([MPI](https://www.mpi-forum.org/docs/) lets each system choose). A program that relies on such a
# buffer works with 10 numbers and hangs with 10 million.
#
# So write every program as if each `send` waits for its `recv`.

# %% [markdown]
# ## Your turn: which rank waits?
#
# Now all ranks stand in a ring. Each rank sends its tensor to the right: rank `r` to rank `r + 1`,
# and the last rank to rank 0. Each rank returns the tensor that comes from the left. Use `dist.send`
# and `dist.recv`.
#
# **Before you write:** draw three ranks on paper. Which ranks send first, and which receive first?


# %% exercise="who_waits"
def who_waits(x: torch.Tensor) -> torch.Tensor:
    """Send `x` to the rank on the right, and return the tensor that came from the left.

    Uses only dist.send and dist.recv, and does not rely on buffers: each send waits for its recv.
    `x` stays unchanged.
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
# **Predict:** the token took four times 32.2 ms for its way around the ring. How long does this shift
# take?

# %% guess="shift_ms"
shift_ms = 2 * 32.2  # your prediction, in ms


# %%
def slow_shift():
    return who_waits(torch.ones(1_000_000)).shape


run = slow.run(slow_shift)
show(run)
beside(shift_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the bars do not form a staircase. First the even ranks send and the odd ranks
# receive, then the odd ranks send and the even ranks receive. So any even number of ranks needs only
# two rounds. (Is your picture a staircase? Then one rank receives first and all others send first:
# this program ends too, but only one message moves at a time.)
#
# An odd number of ranks needs a third round. Why?

# %% [markdown]
# <details><summary>An answer</summary>
#
# With five ranks, ranks 4 and 0 are neighbours and both are even, so both send first. The message of
# rank 4 must therefore wait until rank 0 has sent its own message, and moves in the second round.
# Only then does rank 4 receive from rank 3, in a third round.
#
# </details>

# %% [markdown]
# **In words:** your token took twice as long as your shift, although both sent four messages. How many messages of the token were under way at the same moment, and how many of the shift? What did the other ranks do meanwhile? Use the numbers of your two timelines.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## The way out
#
# `Cluster` has started the ranks for you, and has joined them in a process group. The script below
# does the same without the kit. Save the script in a file `hello.py`:
#
# ```python
# import torch, torch.distributed as dist
#
# dist.init_process_group("gloo")  # or "nccl", with one GPU for each rank
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
# ([torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) starts the ranks).
# `ddpkit script 00` makes such a script of this whole lab. `ddpkit run -n 4 hello.py` runs a script
# on the kit's ranks, and explains a deadlock.

# %% [markdown]
# ## In this lab you have
#
# - run one program on many ranks, which share no memory and exchange only messages;
# - sent a token around a ring, and seen on a timeline which ranks wait;
# - read the messages of a failed, a killed and a deadlocked run;
# - broken a cycle of waiting, without relying on buffers.
#
# **Next:** lab 01 leaves the ranks aside and builds what they will compute: SGD on real data.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 00_ranks.ipynb` in a terminal. This
# command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
