# ---
# jupyter:
#   ddpkit:
#     builds: "six ways to sum, counted, predicted and measured: from all-to-all to the ring"
#     minutes: 90
#     needs: lab 02
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
# # 03 · Six ways to sum
#
# **You will build** six all-reduces, predict the cost of each, and find out which one is the fastest
# for a given size of tensor and number of ranks.
#
# **You need** labs 00 and 02. No GPU and no network. About 90 minutes: each of the six ways takes a
# few minutes.

# %%
import torch, torch.distributed as dist, matplotlib.pyplot as plt
from ddpkit import Cluster, PerRank, beside, check, show

# %% [markdown]
# ## A sum on every rank
#
# Every rank has a tensor. An **all-reduce** adds up the tensors of all ranks, and every rank gets the
# sum. Training on many ranks runs an all-reduce of the gradients in each step. torch has an
# all-reduce,
# [`all_reduce`](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce):

# %%
cluster = Cluster(4)


def torch_sum():
    x = torch.tensor([1.0, 10.0 * dist.get_rank()])
    dist.all_reduce(x)
    return x.tolist()


cluster.run(torch_sum).results

# %% [markdown]
# Now you build six all-reduces of your own, from `isend` and `recv` alone (or `send` and `irecv`).
# Every call names the other rank. All six have the same interface: `f(x)` returns the sum as a new
# tensor, and leaves `x` unchanged.
#
# `isend` only *starts* a message and returns at once; `wait()` returns when the message is sent. So a
# rank can send and receive at the same time, and ranks in a circle do not wait for each other:
#
# ```python
# sending = dist.isend(mine, right)
# dist.recv(theirs, left)
# sending.wait()
# ```

# %% [markdown]
# ## Two prices
#
# A message takes a **latency** $\alpha$, and then its bytes move at the **bandwidth** $\beta$. For
# $S$ bytes, we write $t = S/\beta$. So two counts give the time of an all-reduce:
#
# - latencies: the number of messages in a row, each waiting for the previous message;
# - bytes: the number of bytes on the busiest link.
#
# Each check below prints both counts. (On a network of your own, lab 02's `fit_link` finds $\alpha$
# and $\beta$.)

# %%
from ddpkit.simulate import schedule
from ddpkit.view import play

LINK, latency, bandwidth = "20 Mbit/s, 5 ms", 0.005, 2.5e6  # α in s, β in bytes/s
slow = Cluster(4, link=LINK, speed=float("inf"))  # compute takes no time
x = torch.ones(65_536)
print(f"S is {x.nbytes:,} bytes, and t = S/β is {x.nbytes / bandwidth * 1e3:.0f} ms")

# %% [markdown]
# ## 1 · Everybody tells everybody
#
# Each rank sends its tensor to all other ranks at once, and adds up the tensors that arrive. In which
# order? If all ranks sent to rank 0 first, the other links would be idle meanwhile. So each rank
# sends first to the rank on its right, then to the next rank, and so on: no two ranks send to the
# same rank at the same time.

# %% [markdown]
# **Predict:** on four ranks, how many times $t$ and how many times $\alpha$ does this all-reduce
# take? Here $t$ is 105 ms and $\alpha$ is 5 ms: how many ms are both together? Write the time in
# place of the dots.

# %% guess="all_to_all_ms"
all_to_all_ms = 5 + 3 * 105  # your prediction, in ms


# %% exercise="all_to_all"
def all_to_all(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: every rank sends x to every other rank.

    All messages are under way at once. Every rank adds in the order of the ranks, so that all ranks
    get the same sum to the last bit. `x` may have any shape and dtype, and need not be contiguous.
    To be fast, send first to the next rank on the right, then to the rank after the next, and so
    on. In another order, several ranks may send to the same rank at once. The check does not
    measure the time.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = x.contiguous()  # in one piece: send and recv need a contiguous tensor
    parts = [torch.empty_like(mine) for _ in range(world_size)]
    parts[rank] = mine
    works = [dist.isend(mine, (rank + far) % world_size) for far in range(1, world_size)]
    for far in range(1, world_size):
        sender = (rank - far) % world_size
        works.append(dist.irecv(parts[sender], sender))
    for work in works:
        work.wait()
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total
    # END SOLUTION


# %% check="all_to_all"
check(all_to_all)

# %%
run = slow.run(all_to_all, x)
show(run)
beside(all_to_all_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the time is $\alpha + 3t$. All messages start at once, so there is only one
# latency. But each link has to carry three tensors out and three tensors in, one after the other, and
# each rank needs memory for three more tensors. With $n$ ranks, the time is $\alpha + (n - 1)\,t$:
# good for a few numbers, and hopeless for gradients.

# %% [markdown]
# (Did your `all_to_all` take longer, up to 530 ms? Then several ranks sent to the same rank at once:
# your picture shows which ranks wait. If every rank sends in the order of the distance, no two
# messages go to the same rank at once. The check only counts messages, so both orders pass.)

# %% [markdown]
# ## 2 · One after the other
#
# In round 1, every rank sends `x` to the next rank and receives from the previous rank; in round 2,
# every rank sends to the rank after the next; and so on. After n − 1 rounds, a rank has received the
# tensors of all other ranks. Memory holds only one received tensor, so add each tensor when it
# arrives.
#
# **Predict:** which count changes, the count of $\alpha$ or the count of $t$?


# %% exercise="round_robin"
def round_robin(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor, in n - 1 rounds of one exchange each.

    In round `far` (1 to n - 1), a rank sends x to the rank at distance `far` on the right, receives
    from the rank at distance `far` on the left, and adds. The next round begins afterwards.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = x.contiguous()
    total, received = mine.clone(), torch.empty_like(mine)
    for far in range(1, world_size):
        sending = dist.isend(mine, (rank + far) % world_size)
        dist.recv(received, (rank - far) % world_size)
        sending.wait()
        total += received
    return total
    # END SOLUTION


# %% check="round_robin"
check(round_robin)

# %% [markdown]
# **Notice:** the time is $(n - 1)(\alpha + t)$. The ranks send as many bytes as in the first
# way, but one message after the other. So the second way takes $n - 1$ latencies instead of one, and
# needs memory for one tensor instead of $n - 1$: more time for less memory. (Is there a problem if a
# rank adds the tensors in the order in which they arrive? The end of this lab answers this
# question.)

# %% [markdown]
# ## 3 · A master and its workers
#
# All ranks send their tensors to rank 0, the master. Rank 0 adds up the tensors and sends the sum to
# all other ranks, the workers.
#
# **Predict:** how many tensors does rank 0 receive, how many does rank 0 send, and how many does a
# worker send? How long does the all-reduce take?

# %% guess="master_ms"
master_ms = 2 * 5 + 6 * 105  # your prediction, in ms


# %% exercise="master_worker"
def master_worker(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: rank 0 adds up, and sends the sum.

    Every `send` and every `recv` names a rank.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = x.clone(memory_format=torch.contiguous_format)
    if rank > 0:
        dist.send(total, 0)
        dist.recv(total, 0)
        return total
    received = torch.empty_like(total)
    for worker in range(1, world_size):
        dist.recv(received, worker)
        total += received
    for work in [dist.isend(total, worker) for worker in range(1, world_size)]:
        work.wait()
    return total
    # END SOLUTION


# %% check="master_worker"
check(master_worker)

# %%
run = slow.run(master_worker, x)
show(run)
beside(master_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the time is $2\alpha + 2(n - 1)\,t$. All bytes go through the master's link,
# first in, then out, and each worker waits for about a third of the time. For large tensors, the
# master and its workers are the slowest of the six ways, and each further rank costs more time. But
# they send only $2(n - 1)$ messages in all: good enough for three numbers at the end of an epoch.

# %% [markdown]
# ## 4 · A tree
#
# The master needs help. In each round, half of the ranks with a sum send the sum to the other half:
# with eight ranks, four ranks add at the same time, then two, then one. After
# $\lceil \log_2 n \rceil$ rounds, rank 0 has the whole sum, which goes down the tree again. Both
# halves are in lab 02: `reduce` and `broadcast`.
#
# **Predict:** the master took 640 ms on four ranks. How long does the tree take?

# %% guess="tree_ms"
tree_ms = 4 * (5 + 105)  # your prediction, in ms

# %%
play(schedule("tree", 4, length=8))

# %%
from ddpkit import carry

reduce = carry("reduce")
broadcast = carry("broadcast")


# %% exercise="tree"
def tree(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: up a binomial tree to rank 0, and down.

    Calls lab 02's reduce(x, dst) and broadcast(x, src), which work in place.
    """
    # BEGIN SOLUTION
    total = x.clone()
    reduce(total, dst=0)
    broadcast(total, src=0)
    return total
    # END SOLUTION


# %% check="tree"
check(tree)

# %%
beside(tree_ms, slow.run(tree, x).trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the time is $2 \lceil \log_2 n \rceil (\alpha + t)$. On four ranks, the tree
# takes $4t$ and the master takes $6t$; on a thousand ranks, the tree is a hundred times faster than
# the master. The tree needs as many messages as the master, but many of these messages move at the
# same time. Still, half of the ranks have nothing to do after one round on the way up, and then wait.

# %% [markdown]
# ## 5 · A butterfly
#
# Why should any rank wait? In a **butterfly**, two neighbours *exchange* their tensors, and both add.
# In the next round, each rank exchanges its sum with a rank at distance 2, then 4, …: in each round,
# the number of tensors in a sum doubles.
#
# **Predict:** how many rounds does a butterfly need on 4 ranks, and on 1024?

# %% [markdown]
# <details><summary>An answer</summary>
#
# The butterfly needs 2 rounds on 4 ranks, and 10 rounds on 1024 ranks, because 1024 is $2^{10}$.
#
# </details>

# %%
play(schedule("butterfly", 4, length=8))

# %% [markdown]
# A rank and its partner at distance 1, 2 or 4 differ in one binary digit: the partner is
# `rank ^ distance`.

# %% [markdown]
# With six ranks, rank 3 would need rank 7 as a partner, and there is no rank 7. The largest power of
# two up to six is four, so ranks 0 to 3 make the butterfly. Ranks 4 and 5 lie *beyond* the butterfly:
# before the first round, each of them sends its tensor to a different rank of the butterfly, and
# after the last round, gets the sum back from this rank. This costs two more rounds.


# %% exercise="butterfly"
def butterfly(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor, by recursive doubling.

    If n is not a power of two, each rank beyond the largest power of two first sends x to a
    different rank of the butterfly, and gets the sum back from the same rank at the end.
    Two partners send to each other at the same time.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = x.clone(memory_format=torch.contiguous_format)
    received = torch.empty_like(total)
    doubled = 2 ** (world_size.bit_length() - 1)  # the largest power of two up to n
    if rank >= doubled:
        dist.send(total, rank - doubled)
        dist.recv(total, rank - doubled)
        return total
    if rank + doubled < world_size:
        dist.recv(received, rank + doubled)
        total += received
    for distance in [2**k for k in range(doubled.bit_length() - 1)]:
        sending = dist.isend(total, rank ^ distance)
        dist.recv(received, rank ^ distance)
        sending.wait()
        total += received
    if rank + doubled < world_size:
        dist.send(total, rank + doubled)
    return total
    # END SOLUTION


# %% check="butterfly"
check(butterfly)

# %% [markdown]
# **Notice:** the time is $\log_2 n \, (\alpha + t)$, half of the tree's time, and no rank
# waits. If a rank sends one message in each round, fewer rounds are impossible: in one round, the
# number of tensors in a sum can at most double. But in each round, the whole tensor goes over every
# link, so long tensors cost many times $t$. (The algorithm is in [Thakur and
# others](https://doi.org/10.1177/1094342005051521).)

# %% [markdown]
# ## 6 · A ring, first the wrong way
#
# The ranks form a circle, and each rank sends to the right and receives from the left. The obvious
# program passes whole tensors on:


# %%
def pass_around(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, passing = x.clone(), x.clone()
    for _ in range(world_size - 1):
        received = torch.empty_like(x)
        sending = dist.isend(passing, (rank + 1) % world_size)
        dist.recv(received, (rank - 1) % world_size)
        sending.wait()
        total += received
        passing = received  # to be sent to the right next
    return total


print(cluster.run(pass_around, torch.ones(8)).traffic.table())

# %% [markdown]
# The sum is right, and many tutorials show this program. But count the bytes: $S$ is 32 bytes here,
# and each rank sends 96 bytes, three whole tensors. So the program sends as many bytes as
# `all_to_all`. Moreover, all four ranks add up the *same* numbers, each rank in its own order.
#
# So let each rank add up only a quarter of the tensor.

# %% [markdown]
# ## A ring, the right way
#
# Cut the tensor into n chunks. **Share-reduce** (a reduce-scatter): in each round, every rank sends
# one chunk to the right, and adds the arriving chunk to its own. After $n - 1$ rounds, each rank has
# one finished chunk: the sum over all ranks. *Share only* (an all-gather): in $n - 1$ more rounds,
# the finished chunks travel around the ring, and the ranks copy these chunks. ([Patarasuk and
# Yuan](https://doi.org/10.1016/j.jpdc.2008.09.002) show that no all-reduce sends fewer bytes.)

# %% [markdown]
# **Predict:** how many times $S$ does each rank send with four ranks, and how many times $S$ with
# 1000 ranks?

# %% [markdown]
# <details><summary>An answer</summary>
#
# Each rank sends $2(n - 1)$ chunks of $S/n$: $1.5\,S$ with four ranks, $1.998\,S$ with 1000. Each rank always sends less than $2S$.
#
# </details>

# %%
play(schedule("ring", 4, length=8))


# %% exercise="ring"
def ring(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: chunks go around twice, to the right.

    In each of 2(n - 1) rounds, a rank sends one chunk of about 1/n of x. Works for every length,
    even a length that n does not divide, or a length below n. (`torch.tensor_split` cuts a flat
    tensor into n views.)
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    total = x.clone(memory_format=torch.contiguous_format)
    chunks = total.view(-1).tensor_split(world_size)  # views: adding to a chunk changes total
    for step in range(2 * (world_size - 1)):
        outgoing = chunks[(rank - step) % world_size]
        incoming = chunks[(rank - step - 1) % world_size]
        received = torch.empty_like(incoming)
        sending = dist.isend(outgoing, right)
        dist.recv(received, left)
        sending.wait()
        if step < world_size - 1:  # share-reduce
            incoming += received
        else:  # share only
            incoming.copy_(received)
    return total
    # END SOLUTION


# %% check="ring"
check(ring)

# %% [markdown]
# The two halves are a reduce-scatter and an all-gather, as in lab 02. One thing differs: here, rank
# $r$ begins by sending its own chunk, chunk $r$. After the first half, rank $r$ therefore holds the
# finished chunk $r + 1$, the *next* one.

# %% [markdown]
# The picture shows your own ring, message by message, as it ran on four ranks. Rank 0 begins with
# ones, rank 1 with tens, rank 2 with hundreds, rank 3 with thousands. So the number on an arrow shows
# which ranks have added to the sum: 1011 is the sum of ranks 0, 1 and 3. Press Play, or drag the
# slider.

# %%
play(cluster.run(ring, PerRank([torch.full((8,), 10.0**rank) for rank in range(4)])))

# %% [markdown]
# Now run the ring on the slow link, on which each message takes time.
#
# **Predict:** `all_to_all` takes 320 ms. How long does the ring take, and which ranks will wait?

# %% guess="ring_ms"
ring_ms = 6 * 5 + 1.5 * 105  # your prediction, in ms

# %%
run = slow.run(ring, x)
show(run)
beside(ring_ms, run.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the time is $2(n - 1)\,\alpha + 2\,\frac{n - 1}{n}\,t$. Every link is busy all
# the time, in both directions, and no rank sends a byte without need. For any number of ranks, each
# rank sends less than $2S$. Therefore large models use the ring for their gradients
# ([Horovod](https://arxiv.org/abs/1802.05799) made the ring common). The price of the ring is $2(n -
# 1)$ latencies.

# %% [markdown]
# ## What does it cost?
#
# The formulas above give the time of each of the six ways. Now write them as a function: from
# latency and bandwidth to seconds.
#
# **Predict:** take four ranks, a latency of 5 ms, and a tensor with $t = 105$ ms. Which of the six
# all-reduces is the fastest? Which is the fastest for a tensor of 1 kB?

# %% [markdown]
# <details><summary>An answer</summary>
#
# The ring is the fastest, with 188 ms. A tensor of 1 kB has $t = 0.4$ ms, so nearly all of its time
# is latency. For this tensor, `all_to_all` is the fastest: it has only one latency.
#
# </details>


# %% exercise="predict"
def predict(
    algorithm: str, world_size: int, nbytes: int, latency: float, bandwidth: float
) -> float:
    """Return the seconds of one of the six all-reduces, given by its name.

    `latency` is α in seconds, `bandwidth` is β in bytes per second. A tree takes ⌈log2 n⌉ rounds
    up and as many down. A butterfly takes log2 n rounds if n is a power of two, and ⌊log2 n⌋ + 2
    otherwise. One rank alone needs no time.
    """
    # BEGIN SOLUTION
    n, t = world_size, nbytes / bandwidth
    up = (n - 1).bit_length()  # ⌈log2 n⌉
    doublings = up if n == 2**up else up + 1  # ⌊log2 n⌋ + 2 is ⌈log2 n⌉ + 1 there
    latencies, tensors = {
        "all_to_all": (1, n - 1),
        "round_robin": (n - 1, n - 1),
        "master_worker": (2, 2 * (n - 1)),
        "tree": (2 * up, 2 * up),
        "butterfly": (doublings, doublings),
        "ring": (2 * (n - 1), 2 * (n - 1) / n),
    }[algorithm]
    return latencies * latency + tensors * t if n > 1 else 0.0
    # END SOLUTION


# %% check="predict"
check(predict)

# %% [markdown]
# ## Are the predictions right?
#
# The next cells run all six on the slow link, for several sizes and numbers of ranks. `span` names a
# stretch of a rank's work: the trace keeps the beginning and the end of this stretch.

# %%
from ddpkit import span

SIX = [all_to_all, round_robin, master_worker, tree, butterfly, ring]


def each_twice(functions, lengths):
    for take in range(2):
        for f in functions:
            for length in lengths:
                x = torch.ones(length)
                dist.barrier()  # all begin together
                with span(f"{f.__name__} {x.nbytes} {take}"):
                    f(x)


# %%
def measure(world_size, functions, lengths):
    """Return {(name, bytes): seconds}, from the first rank's beginning to the last rank's end."""
    run = Cluster(world_size, link=LINK).run(each_twice, functions, lengths)
    ns, best = {}, {}
    for one in run.trace.spans:
        if one.kind == "span":
            ns[one.name] = [*ns.get(one.name, []), one.start_ns, one.end_ns]
    for text, moments in ns.items():
        name, nbytes, _ = text.split()
        seconds = (max(moments) - min(moments)) / 1e9
        best[name, int(nbytes)] = min(seconds, best.get((name, int(nbytes)), seconds))
    return best


# %%
lengths = [256, 2048, 16_384, 65_536]
took = {n: measure(n, SIX, lengths if n == 4 else [16_384]) for n in (2, 4, 8)}


# %%
def panel(ax, cases, which, label):
    """Draw predictions as lines, measurements as marks, over ranks (`which` = 0) or bytes (1)."""
    cases = [case for case in cases if took[case[0]]]  # under torchrun, a run may be skipped
    for f, mark in zip(SIX, "osvD^P"):
        name, at = f.__name__, [case[which] for case in cases]
        said = [predict(name, n, nbytes, latency, bandwidth) * 1e3 for n, nbytes in cases]
        measured = [took[n][name, nbytes] * 1e3 for n, nbytes in cases]
        (line,) = ax.loglog(at, said, linewidth=1)
        ax.loglog(at, measured, mark, color=line.get_color(), markersize=5, label=name)
    ax.set(xlabel=label, ylabel="ms"), ax.minorticks_off()


# %%
plt.style.use("ddpkit.view.plain")
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
panel(left, [(4, 4 * length) for length in lengths], 1, "bytes, on 4 ranks")
panel(right, [(n, 65_536) for n in took], 0, "ranks, with 64 kB each")
right.set_xticks([2, 4, 8], [2, 4, 8])
fig.legend(*left.get_legend_handles_labels(), loc="outside right")
plt.show()

# %%
cases = [(n, name, nbytes) for n in took for name, nbytes in took[n]]
ratios = sorted(took[n][name, S] / predict(name, n, S, latency, bandwidth) for n, name, S in cases)
print(f"measured ÷ predicted: {ratios[0]:.3f} to {ratios[-1]:.3f}, ", end="")
print(f"half of them below {ratios[len(ratios) // 2]:.3f}")

# %% [markdown]
# **Notice:** lines are predictions, marks are measurements, and the lines cross. On the left,
# the ring's line is flat at first, because small tensors cost mostly latencies. Then all lines rise
# alike, and the height of a line depends on the number of times $t$ in its formula. On the right, the
# time of the master grows with $n$, the time of the butterfly with $\log n$; the time of the ring
# grows only by its latencies.

# %% [markdown]
# (If a mark lies a little above its line, the reason is Python's own work: about 0.1 ms for each
# message. If a mark lies far above its line, several ranks sent to the same rank at once, as in part
# 1.)

# %% [markdown]
# ## Where they cross
#
# **Predict:** on this link and with four ranks, above which size is a ring faster than a butterfly?
# Butterfly: $2(\alpha + t)$. Ring: $6\alpha + 1.5\,t$.

# %% [markdown]
# <details><summary>An answer</summary>
#
# The ring and the butterfly take the same time if $0.5\,t = 4\alpha$, so $t = 8\alpha = 40$ ms. In 40
# ms, the link moves 100,000 bytes. (The cell tries multiples of 1,000, and prints the first size at
# which the ring wins.)
#
# </details>


# %%
def ring_wins(nbytes, world_size=4):
    by = [predict(name, world_size, nbytes, latency, bandwidth) for name in ("ring", "butterfly")]
    return by[0] < by[1]


crossover = next(nbytes for nbytes in range(0, 10**9, 1000) if ring_wins(nbytes))
print(f"predicted: {crossover:,} bytes")
times = measure(4, [butterfly, ring], [crossover // 16, crossover // 4, crossover])
for (name, nbytes), seconds in sorted(times.items(), key=lambda item: item[0][1]):
    print(f"{nbytes:7,} bytes: {name:9} {seconds * 1e3:5.1f} ms")

# %% [markdown]
# The two measurements in the middle have the predicted size, at which the butterfly and the ring
# take about the same time. With a quarter of this size the butterfly wins, and with four times this
# size the ring wins.
#
# Nobody wants to choose by hand. So let `predict` choose, here for a network between GPUs with 100
# Gbit/s and 10 µs:

# %%
some = {"1 kB": 1e3, "100 kB": 1e5, "10 MB": 1e7, "1 GB": 1e9}
print("ranks", *(f"{text:>14}" for text in some))
for n in (4, 32, 256, 2048):
    row = []
    for nbytes in some.values():
        price = {f.__name__: predict(f.__name__, n, nbytes, 1e-5, 1.25e10) for f in SIX}
        row.append(min(price, key=price.get))
    print(f"{n:5}", *(f"{name:>14}" for name in row))

# %% [markdown]
# **NCCL** chooses in this way. NCCL has a ring and a tree ([two trees at
# once](https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/), so that
# all links are busy) and tables of latencies and bandwidths. For each call, NCCL takes the algorithm
# that its own formulas predict to be the fastest.

# %% [markdown]
# **gloo**, the library in which torch's all-reduce runs here, always uses a ring. gloo cuts each
# chunk into segments, so that one segment moves while the rank adds the previous segment. So even a
# small tensor takes $2(n - 1)$ latencies. This is one reason to send gradients in buckets (lab 05).

# %% [markdown]
# **In words:** eight GPUs on the network with 100 Gbit/s and 10 µs sum gradients of 1 GB in each
# step, and one number, the loss, at the end of each epoch. Which of the six all-reduces would you
# take for the gradients, and which for the loss? Say why, with numbers from `predict`.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A model of 7 billion parameters
#
# The gradients of this model have 14 GB in bfloat16, two bytes for each parameter. Training on many
# ranks sums up the gradients in every step.
#
# **Predict:** eight ranks use a ring, on links of 100 Gbit/s, which is 12.5 GB/s. How many seconds
# does the all-reduce take in each step? How many seconds does it take on links of 1 Gbit/s?

# %% guess="gradients_s"
gradients_s = 2 * 7 / 8 * 14 / 12.5  # your prediction, in s, with 100 Gbit/s

# %%
for link, each in {"100 Gbit/s": 12.5e9, "1 Gbit/s": 0.125e9}.items():
    print(f"{link:>10}: {predict('ring', 8, 14_000_000_000, 1e-5, each):5.1f} s by your predict")

# %% [markdown]
# Now run your ring with a thousandth of the bytes, on a thousandth of 100 Gbit/s, so that $t$ is the
# same.

# %%
run = Cluster(8, link="100 Mbit/s, 10 us").run(ring, torch.ones(7_000_000, dtype=torch.bfloat16))
beside(gradients_s, run.trace.duration_ms / 1e3, "s")

# %% [markdown]
# **Notice:** nearly the whole time is $2\,\frac{n - 1}{n}\,t$, in every step. With more
# ranks, this part of the time stays below $2t$. Three things help: a faster link, fewer bytes, and
# compute at the same time as the communication (lab 06).

# %% [markdown]
# ## Does everybody get the same sum?
#
# A float32 number has 24 binary digits. So in float32, $10^8 + 1$ is $10^8$: the 1 is too small, and
# is lost. Therefore the order of the additions matters.
#
# **Predict:** four ranks have $10^8$, $1$, $-10^8$ and $1$. The exact sum is 2. Which of your six
# all-reduces return 2? Do all four ranks get the same sum?


# %%
def rounded():
    x = torch.full((4,), [1e8, 1.0, -1e8, 1.0][dist.get_rank()])
    return [f(x).int().tolist() for f in SIX]


results = cluster.run(rounded).results
for f, sums in zip(SIX, zip(*filter(None, results))):  # None under torchrun with too few ranks
    same = "all ranks the same" if all(each == sums[0] for each in sums) else "the ranks differ"
    print(f"{f.__name__:14}", *sums, same)

# %% [markdown]
# **Notice:** each line shows one of the six all-reduces, and each bracket shows the four
# elements of a rank's sum.
#
# - The sums differ, because the six add in four different orders.
# - In the ring, the elements differ: each chunk's sum starts on a different rank.
# - If one rank adds and the others copy, or if two partners add the same two numbers, all ranks get
#   the same bits. In `round_robin`, each rank begins with its own number.

# %% [markdown]
# This is the problem of `round_robin`, in which each rank adds in its own order. The ranks train
# copies of one model. If their sums differ in the last bit, the copies drift apart, a little more in
# each step, without any error. An all-reduce for training must give all ranks the *same* bits. It
# matters less which bits these are: every order of additions rounds in its own way, and all orders
# are equally good.

# %% [markdown]
# ## The way out
#
# Measure your own machines: the time of the smallest tensor shows $\alpha$, and the time of the
# largest shows $\beta$. Save this in a file `measure.py`:
#
# ```python
# import time, torch, torch.distributed as dist
#
# dist.init_process_group("gloo")  # on GPUs: "nccl", x on the GPU, torch.cuda.synchronize()
# for power in range(0, 21, 5):
#     x = torch.ones(2**power)
#     dist.all_reduce(x)  # the first all-reduce also makes the connections
#     dist.barrier()
#     start = time.perf_counter()
#     for _ in range(10):
#         dist.all_reduce(x)
#     if dist.get_rank() == 0:
#         print(f"{x.nbytes:9,} bytes: {(time.perf_counter() - start) / 10 * 1e3:.3f} ms")
# dist.destroy_process_group()
# ```
#
# In a terminal: `torchrun --nproc-per-node 2 measure.py`.

# %% [markdown]
# ## In this lab you have
#
# - written six all-reduces, and counted their latencies and bytes;
# - predicted and measured the time of each, and found the size above which the ring is faster than
#   the butterfly;
# - seen why libraries choose an algorithm by the size of the tensor and the number of ranks;
# - learned which algorithms give all ranks the same sum, bit for bit.
#
# **Next:** lab 04 uses an all-reduce to train a model on many ranks: data parallelism.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 03_all_reduce.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
