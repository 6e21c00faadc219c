# ---
# jupyter:
#   ddpkit:
#     builds: broadcast, scatter, gather, reduce, two rings and a barrier from send and recv; α and β of a link
#     minutes: 90
#     needs: lab 00
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
# # 02 · Collectives
#
# **You will build** broadcast, reduce, scatter, gather, all-gather, reduce-scatter and a barrier,
# from `send`, `recv`, `isend` and `irecv` alone, and measure the cost of a message on a link.
#
# **You need** lab 00. No GPU and no network. About 90 minutes.

# %%
import time, torch, torch.distributed as dist, matplotlib.pyplot as plt
from ddpkit import Cluster, beside, check, show, span

# %% [markdown]
# ## Why collectives?
#
# A training step on many ranks needs the same few operations again and again: all ranks get the
# tensor of one rank, or the tensors of all ranks become one sum. A **collective** is a call of such
# an operation: all ranks make this call together. [torch has
# collectives](https://docs.pytorch.org/docs/stable/distributed.html#collective-functions) ready to
# use. After building collectives yourself, you know the cost of each, and the reason for the cost.

# %% [markdown]
# ## Start, go on, wait
#
# `send` returns when the message is sent, and `recv` returns when the message has arrived. `isend`
# and `irecv` only *start* a message and return a handle at once; `handle.wait()` returns when the
# message is sent or has arrived.

# %% [markdown]
# Rank 0 sends 2 MB, which take 161 ms on the link below, and has 100 ms of work to do.
#
# **Predict:** how long do the message and the work take together with `send`, and how long with
# `isend`? Write your numbers in place of the dots.

# %% guess="send_ms"
send_ms = 161 + 100  # your prediction, in ms

# %% guess="isend_ms"
isend_ms = 161  # your prediction, in ms

# %%
LINK = "100 Mbit/s, 1 ms"
slow = Cluster(4, link=LINK)


def work(seconds=0.1):
    with span("work"):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


# %%
def send_then_work(at_once):
    x = torch.ones(500_000)
    if dist.get_rank() == 0:
        sending = dist.isend(x, dst=1) if at_once else dist.send(x, dst=1)
        work()
        if at_once:
            sending.wait()
    elif dist.get_rank() == 1:
        dist.recv(x, src=0)


from ddpkit.view import compare

by_send, by_isend = (slow.run(send_then_work, at_once) for at_once in (False, True))
compare(by_send, by_isend, labels=["send, then work", "isend, work, wait"])
beside(send_ms, by_send.trace.duration_ms, "ms, by send")
beside(isend_ms, by_isend.trace.duration_ms, "ms, by isend")

# %% [markdown]
# **Notice:** with `send`, the work begins when the message is sent. With `isend`, rank 0
# works while the bytes move, and then waits only for the rest of the bytes.
#
# The table splits rank 0's time into four parts, among them these two. *Overlapped*: rank 0 computed
# while a message moved. *Exposed*: a message moved, or rank 0 waited for a message, and rank 0 did
# not compute.

# %% [markdown]
# From `isend` to `wait`, the tensor belongs to the network. If you change the tensor in between, the
# network may send the old values or the new ones.
#
# A started message is not yet a sent message. An `isend` needs a `recv`, as a `send` does:
# `handle.wait()` returns only when the other rank receives.

# %% [markdown]
# ## What a message costs
#
# Rank 0 sends $S$ bytes to rank 1, and rank 1 sends the bytes back: **ping-pong**. We measure the
# time three times for each of several sizes, and keep the median, because other work of the laptop
# may disturb a measurement.
#
# **Predict:** does a message with twice the bytes take twice the time?


# %%
def ping_pong(nbytes, times=5):
    x, rank = torch.zeros(nbytes, dtype=torch.uint8), dist.get_rank()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        if rank == 0:
            dist.send(x, dst=1)
            dist.recv(x, src=1)
        else:
            dist.recv(x, src=0)
            dist.send(x, dst=0)
    return (time.perf_counter() - start) / times


# %%
sizes = [1000, 25_000, 50_000, 100_000, 150_000, 200_000]


def all_sizes():
    ping_pong(sizes[0])  # not counted: the first message sets up a connection
    return [sorted(ping_pong(nbytes) for _ in range(3))[1] for nbytes in sizes]


round_trips = Cluster(2, link=LINK).run(all_sizes).results[0]
for nbytes, seconds in zip(sizes, round_trips):
    print(f"{nbytes:7,} bytes there and back: {seconds * 1e3:5.2f} ms")

# %% [markdown]
# The times lie on a line, but the line does not go through zero. A message of $S$ bytes takes
#
# $$\alpha + S / \beta$$
#
# - the **latency** $\alpha$ is the time that even an empty message takes, in seconds;
# - the **bandwidth** $\beta$ says how fast the bytes follow each other, in bytes per second.
#
# These two numbers are enough to predict every time in this lab and the next. (MPICH chooses its
# collectives by $\alpha$ and $\beta$: [Thakur, Rabenseifner and
# Gropp](https://doi.org/10.1177/1094342005051521).)

# %% [markdown]
# ## Your turn: fit a line
#
# No line goes exactly through measured points. **Least squares** chooses the line $t = a + bS$ with
# the smallest sum of squared errors:
#
# $$b = \frac{\sum_i (S_i - \bar S)(t_i - \bar t)}{\sum_i (S_i - \bar S)^2},
# \qquad a = \bar t - b \bar S$$
#
# where $\bar S$ and $\bar t$ are means. Remember that a round trip consists of two messages.


# %% exercise="fit_link"
def fit_link(nbytes: list[int], round_trips: list[float]) -> tuple[float, float]:
    """Return a link's latency in seconds and bandwidth in bytes per second, by least squares.

    A message of `nbytes[i]` bytes took `round_trips[i]` seconds there and back. All measurements
    have the same weight.
    """
    # BEGIN SOLUTION
    size = torch.tensor(nbytes, dtype=torch.float64)
    one_way = torch.tensor(round_trips, dtype=torch.float64) / 2
    far = size - size.mean()
    seconds_per_byte = (far * (one_way - one_way.mean())).sum() / (far * far).sum()
    latency = one_way.mean() - seconds_per_byte * size.mean()
    return latency.item(), 1 / seconds_per_byte.item()
    # END SOLUTION


# %% check="fit_link"
check(fit_link)

# %% [markdown]
# **Predict:** our link has 100 Mbit/s and 1 ms. Which bandwidth will your fit give, in MB/s? (A byte
# has 8 bits.)

# %% guess="bandwidth_mb"
bandwidth_mb = 100 / 8  # your prediction, in MB/s

# %%
plt.style.use("ddpkit.view.plain")
latency, bandwidth = fit_link(sizes, round_trips)
plt.figure(figsize=(6, 3))
line = [(latency + s / bandwidth) * 1e3 for s in (0, sizes[-1])]
plt.plot([0, sizes[-1] / 1e3], line, label="α + S/β")
plt.plot([s / 1e3 for s in sizes], [t / 2 * 1e3 for t in round_trips], "o", label="measured")
plt.xlabel("S, in kB"), plt.ylabel("one way, in ms"), plt.ylim(0), plt.legend()
plt.show()
print(f"{slow}\nα = {latency * 1e3:.2f} ms, β = {bandwidth / 1e6:.1f} MB/s")
beside(bandwidth_mb, bandwidth / 1e6, "MB/s")

# %% [markdown]
# **Notice:** the line begins at $\alpha$, and its slope is $1/\beta$. The time of a small
# message is mostly latency, the time of a large message is mostly the time of its bytes. For a
# message of $S = \alpha\beta$ bytes, both times are equal:

# %%
print(f"αβ = {latency * bandwidth / 1e3:.0f} kB")

# %% [markdown]
# ## One tells all
#
# Before training, all ranks need the same parameters, so rank 0 sends its parameters to all others.
# This collective is a **broadcast**. The simple way is to send to one rank after the other.
#
# **Predict:** 1 MB takes 81 ms from rank to rank. How long does this broadcast take on four ranks,
# and how long on eight ranks?

# %% guess="star_ms"
star_ms = 3 * 81  # your prediction for four ranks, in ms


# %%
def one_by_one(x, src):
    if dist.get_rank() == src:
        for peer in range(dist.get_world_size()):
            if peer != src:
                dist.send(x, dst=peer)
    else:
        dist.recv(x, src=src)


run = slow.run(one_by_one, torch.ones(250_000), src=0)
show(run)
beside(star_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** rank 0 sends all messages, one after the other: with eight ranks, the broadcast
# would take seven times 81 ms. But rank 1 has the tensor early, and could help.
#
# If every rank with the tensor helps, the number of these ranks doubles in each **round**: 1, 2, 4,
# 8, … So $n$ ranks need $\lceil \log_2 n \rceil$ rounds. The messages form a *binomial tree*. Drag
# the slider:

# %%
from ddpkit.simulate import schedule
from ddpkit.view import play

play(schedule("broadcast", 8, length=8))

# %% [markdown]
# **Predict:** how many rounds do 5 ranks need, and how many do 1000 ranks need?

# %% [markdown]
# <details><summary>An answer</summary>
#
# 5 ranks need 3 rounds, and 1000 ranks need 10: $2^3$ is the first power of two that is not below 5, and $2^{10}$ is the first that is not below 1000.
#
# </details>

# %% [markdown]
# ## Your turn: broadcast
#
# Let rank 0 be the root, the rank that has the tensor. In the round with `far` = 1, 2, 4, … each
# rank `r` below `far` sends to rank `r + far`, if this rank exists.
#
# With another root, use places instead of ranks. The *place* of a rank counts from the root on,
# around the circle: the root has place 0, and the next rank has place 1. The rule above then holds
# for places.

# %% [markdown]
# Here and below, pass the rank of the sender to each `recv`. Without this argument, `recv` takes the
# first message that comes, from any rank: perhaps a message of the next round.
#
# **Predict:** sending to one rank after the other took $3 \cdot 81$ ms on four ranks. How long does
# the tree take?

# %% guess="tree_ms"
tree_ms = 2 * 81  # your prediction, in ms


# %% exercise="broadcast"
def broadcast(x: torch.Tensor, src: int) -> None:
    """Copy `x` of rank `src` into `x` of every rank, by a binomial tree.

    Works in place, with only send, recv, isend and irecv; each call names a rank. Takes ⌈log2 n⌉
    rounds, and each rank except `src` receives `x` once. `x` may have any shape, and may be
    transposed, but send and recv need `x.contiguous()`.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place, far = (rank - src) % world_size, 1
    message = x.contiguous()
    while far < world_size:
        if place < far and place + far < world_size:
            dist.send(message, (rank + far) % world_size)
        elif far <= place < 2 * far:
            dist.recv(message, (rank - far) % world_size)
        far *= 2
    x.copy_(message)
    # END SOLUTION


# %% check="broadcast"
check(broadcast)

# %%
run = slow.run(broadcast, torch.ones(250_000), src=0)
show(run)
beside(tree_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** three messages move in two rounds: in the second round, two messages move at the
# same time. The tree sends as many bytes as before, in two thirds of the time.

# %% [markdown]
# ## Your turn: reduce
#
# If messages go backwards along a tree, ranks can add up tensors on the way. This collective is a
# **reduce**: rank `dst`, at place 0, gets the sum of all ranks' tensors. In the round with `far` = 1,
# 2, 4, … each rank whose place `p` is an odd multiple of `far` sends its sum to the rank at place
# `p - far`, and is done.
#
# **Predict:** how many messages does a rank send at most?


# %% exercise="reduce"
def reduce(x: torch.Tensor, dst: int) -> None:
    """Add up `x` of all ranks into `x` of rank `dst`, by a binomial tree.

    Uses the same calls as `broadcast`, and each call names a rank. `x` stays unchanged on every
    rank except `dst`. Takes ⌈log2 n⌉ rounds, and each rank except `dst` sends once: as many bytes
    as `x` has.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place, far = (rank - dst) % world_size, 1
    total = x.contiguous()
    while far < world_size and place % far == 0:
        if place % (2 * far) == far:
            dist.send(total, (rank - far) % world_size)
        elif place + far < world_size:
            received = torch.empty_like(total)
            dist.recv(received, (rank + far) % world_size)
            total = total + received
        far *= 2
    if rank == dst:
        x.copy_(total)
    # END SOLUTION


# %% check="reduce"
check(reduce)

# %%
run = slow.run(reduce, torch.ones(250_000), dst=0)
show(run)
print(run.traffic)

# %% [markdown]
# **Notice:** each rank except `dst` sends once, and is done. The messages climb the tree of
# the broadcast, so a reduce costs as much as a broadcast:
# $\lceil \log_2 n \rceil \, (\alpha + S/\beta)$.

# %% [markdown]
# ## One chunk for each rank
#
# **Scatter:** rank `src` has a list of tensors, the *chunks*, and gives each rank one chunk. For
# example, a scatter hands out the parts of a batch. **Gather** is the way back: rank `dst` collects
# a chunk from each rank.
#
# **Predict:** the root could also broadcast the whole list, and each rank would take its chunk out
# of the list. On four ranks, by which factor does the broadcast send more bytes than the scatter?

# %% [markdown]
# <details><summary>An answer</summary>
#
# The broadcast sends four times as many bytes. Each of the three other ranks receives the whole list
# instead of a quarter of the list. With $n$ ranks, the ranks send $n$ times as many bytes.
#
# </details>


# %% exercise="scatter"
def scatter(x: torch.Tensor, chunks: list[torch.Tensor] | None, src: int) -> None:
    """Copy `chunks[r]` of rank `src` into `x` of rank r, for every r.

    Uses only messages. `chunks` is None on the other ranks. Rank `src` sends each of these ranks
    its chunk and nothing else. The chunks stay unchanged, may have different lengths, and need not
    be contiguous; each `x` is contiguous.
    """
    # BEGIN SOLUTION
    if dist.get_rank() != src:
        dist.recv(x, src)
        return
    for rank, chunk in enumerate(chunks):
        if rank != src:
            dist.send(chunk.contiguous(), rank)
    x.copy_(chunks[src])
    # END SOLUTION


# %% check="scatter"
check(scatter)


# %% exercise="gather"
def gather(x: torch.Tensor, chunks: list[torch.Tensor] | None, dst: int) -> None:
    """Copy `x` of rank r into `chunks[r]` of rank `dst`, for every r.

    Uses only messages. `chunks` is None on the other ranks; each of these ranks sends one message,
    to `dst`. The chunks are written in place, and are contiguous. Every `x` stays unchanged, and
    need not be contiguous.
    """
    # BEGIN SOLUTION
    if dist.get_rank() != dst:
        dist.send(x.contiguous(), dst)
        return
    for rank, chunk in enumerate(chunks):
        if rank != dst:
            dist.recv(chunk, rank)
    chunks[dst].copy_(x)
    # END SOLUTION


# %% check="gather"
check(gather)

# %% [markdown]
# **Predict:** rank 0 scatters 1 MB over four ranks. A quarter takes 21 ms from rank to rank. How long
# does the whole scatter take?

# %% guess="scatter_ms"
scatter_ms = 3 * 21  # your prediction, in ms


# %%
def hand_out():
    n, rank = dist.get_world_size(), dist.get_rank()
    x = torch.empty(250_000 // n)
    scatter(x, list(torch.ones(250_000).chunk(n)) if rank == 0 else None, src=0)


run = slow.run(hand_out)
show(run)
beside(scatter_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** all bytes leave over the link of rank 0. In any order, these bytes take
# $\frac{n-1}{n} \cdot S/\beta$. If all bytes go through one rank, the link of this rank is the limit.

# %% [markdown]
# **In words:** a tree makes a broadcast much faster, but hardly makes a scatter faster. Why? Say which link carries how many bytes.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Nobody in the middle
#
# Now every rank has one chunk, and every rank needs all chunks: this collective is an **all-gather**.
# A gather followed by a broadcast would work, but all bytes would go through one rank. A ring is
# better: in each step, every rank passes on the chunk that the rank received last.
#
# **Predict:** how many steps does the ring need, and how many bytes does each rank send?

# %% [markdown]
# <details><summary>An answer</summary>
#
# The ring needs $n - 1$ steps. In each step, every rank sends one chunk. If all chunks together have $S$ bytes, each rank sends $\frac{n-1}{n} \cdot S$ bytes in all.
#
# </details>


# %% exercise="all_gather"
def all_gather(chunks: list[torch.Tensor], x: torch.Tensor) -> None:
    """Copy `x` of rank r into `chunks[r]` of every rank, around a ring.

    Uses only messages. In each of n - 1 steps, a rank sends one chunk to the right (rank + 1) and
    at the same time receives one chunk from the left. The chunks are written in place. `x` stays
    unchanged, need not be contiguous, and may be one of the chunks. The chunks are contiguous and
    may have different lengths.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    chunks[rank].copy_(x)
    for step in range(world_size - 1):
        sending = dist.isend(chunks[(rank - step) % world_size], (rank + 1) % world_size)
        dist.recv(chunks[(rank - step - 1) % world_size], (rank - 1) % world_size)
        sending.wait()
    # END SOLUTION


# %% check="all_gather"
check(all_gather)

# %% [markdown]
# The mirror image is a **reduce-scatter**. Every rank has a list of $n$ chunks, and rank $r$ gets the
# sum of chunk $r$ over all ranks. In the ring, the sum for rank $r$ starts at the right neighbour of
# rank $r$. The sum travels to the right, and each rank on the way adds its own chunk $r$.
#
# **Predict:** on four ranks, on which rank does the sum of chunk 0 start, and where does it go?

# %% [markdown]
# <details><summary>An answer</summary>
#
# The sum starts on rank 1, goes on to rank 2 and rank 3, and ends on rank 0, which needs the sum.
#
# </details>


# %% exercise="reduce_scatter"
def reduce_scatter(x: torch.Tensor, chunks: list[torch.Tensor]) -> None:
    """Add up `chunks[r]` of all ranks into `x` of rank r, around a ring.

    Uses only messages. In each of n - 1 steps, a rank sends one sum to the right (rank + 1) and at
    the same time receives one sum from the left. The chunks stay unchanged (but `x` may be one of
    the chunks), may have different lengths, and need not be contiguous.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = chunks[rank - 1].contiguous()
    for step in range(2, world_size + 1):
        mine = chunks[rank - step].contiguous()
        received = torch.empty_like(mine)
        sending = dist.isend(total, (rank + 1) % world_size)
        dist.recv(received, (rank - 1) % world_size)
        sending.wait()
        total = received + mine
    x.copy_(total)
    # END SOLUTION


# %% check="reduce_scatter"
check(reduce_scatter)

# %% [markdown]
# **Predict:** each of four ranks has 1 MB, and a quarter of 1 MB takes 21 ms from rank to rank. How
# long does the reduce-scatter take?

# %% guess="ring_ms"
ring_ms = 3 * 21  # your prediction, in ms


# %%
def sum_up():
    n = dist.get_world_size()
    reduce_scatter(torch.empty(250_000 // n), list(torch.ones(250_000).chunk(n)))


no_compute = Cluster(4, link=LINK, speed=float("inf"))  # compute takes no time
run = no_compute.run(sum_up)
show(run)
print(run.traffic)
beside(ring_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** every rank sends all the time, and no rank waits for another rank. Each rank
# sends $\frac{n-1}{n}$ of its 1 MB. With a thousand ranks, each rank still sends less than 1 MB.
# Remember this picture: lab 03 puts a reduce-scatter and an all-gather together.

# %% [markdown]
# ## Waiting for all
#
# A **barrier** moves no data. No rank returns from a barrier before every rank has called the
# barrier. So each rank must *hear* of all other ranks, directly or through other ranks.

# %% [markdown]
# In each round, let every rank send to the rank at distance `far` = 1, 2, 4, … to the right. A
# message means: the sender has come, and so have all ranks of which the sender has heard.
#
# **Predict:** after round 1, of how many other ranks has each rank heard? Of how many after round 2?

# %% [markdown]
# <details><summary>An answer</summary>
#
# After round 1, each rank has heard of one other rank, and after round 2 of three. With the rank itself, the number of known ranks doubles in each round: 1, 2, 4, 8.
#
# </details>


# %% exercise="barrier"
def barrier() -> None:
    """Return only after every rank has called the barrier, in ⌈log2 n⌉ rounds.

    In each round, a rank sends a message of one element to one rank, and at the same time receives
    a message from another rank. Each call names a rank.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    far = 1
    while far < world_size:
        sending = dist.isend(torch.zeros(1), (rank + far) % world_size)
        dist.recv(torch.zeros(1), (rank - far) % world_size)
        sending.wait()
        far *= 2
    # END SOLUTION


# %% check="barrier"
check(barrier)


# %%
def one_is_late():
    if dist.get_rank() == 2:
        work()
    barrier()


show(slow.run(one_is_late))

# %% [markdown]
# **Notice:** the other ranks go on only after the late rank comes, one or two rounds later. A
# barrier costs $\lceil \log_2 n \rceil \, \alpha$, and also the whole delay of the slowest rank. So
# good programs have few barriers.

# %% [markdown]
# ## The same from torch
#
# Your functions have the same signatures as torch's own functions, so one program can use either. The
# argument `c` of the program below is `torch.distributed`, or a namespace with your seven functions.
#
# **Predict:** will the program be faster with torch's functions or with yours, and by how much?


# %%
def program(c):
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.arange(n * 65_536.0) * (rank + 1)
    mine, chunks = torch.empty(65_536), list(x.chunk(n))
    c.broadcast(x, src=n - 1)
    c.reduce_scatter(mine, chunks)
    c.all_gather(chunks, mine)
    c.gather(mine, chunks if rank == 0 else None, dst=0)
    c.scatter(mine, chunks if rank == 0 else None, src=0)
    c.barrier()
    c.reduce(mine, dst=0)
    return mine if rank == 0 else x


# %%
from types import SimpleNamespace

names = "broadcast", "reduce_scatter", "all_gather", "gather", "scatter", "barrier", "reduce"
yours = slow.run(program, SimpleNamespace(**{name: globals()[name] for name in names}))
torchs = slow.run(program, dist)
if None not in yours.results:  # None under torchrun with too few ranks
    print("the same results:", all(map(torch.equal, yours.results, torchs.results)))

# %%
compare(yours, torchs, labels=["yours", "torch.distributed"])

# %% [markdown]
# **Notice:** both runs give the same results, in about the same time. Your rows show every
# message. torch's rows show one bar for each collective; now you know the messages inside such a bar.

# %% [markdown]
# ## The way out
#
# Your functions have these names in torch. Save this in a file `collectives.py`:
#
# ```python
# import torch, torch.distributed as dist
#
# dist.init_process_group("gloo")
# rank, ranks = dist.get_rank(), dist.get_world_size()
# x = torch.full((2,), float(rank))
# everybodys = [torch.empty(2) for _ in range(ranks)]
# dist.all_gather(everybodys, x)
# dist.reduce(x, dst=0)  # the sum, on rank 0
# dist.broadcast(x, src=0)
# dist.barrier()
# print(f"rank {rank}: the sum is {x.tolist()}, of {len(everybodys)} parts")
# dist.destroy_process_group()
# ```
#
# In a terminal: `torchrun --nproc-per-node 4 collectives.py`.

# %% [markdown]
# ## In this lab you have
#
# - started a message, worked meanwhile, and then waited for the message;
# - measured a link, and described it by two numbers, $\alpha$ and $\beta$;
# - built trees, which need $\lceil \log_2 n \rceil$ rounds, and rings, in which every link is always busy;
# - counted bytes and rounds, and seen why a rank in the middle is slow.
#
# **Next:** lab 03 gives all ranks the sum, in six ways, and predicts the fastest.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 02_collectives.ipynb` in a
# terminal. This command checks your notebook in the same way as the grader, with other inputs, and
# shows the grader's result.
