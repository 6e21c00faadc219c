# ---
# jupyter:
#   ddpkit:
#     builds: "attention over a sequence that no rank holds whole: a ring of keys, its backward, balance"
#     minutes: 90
#     needs: labs 02, 04 and 12
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
# # 16 · Context
#
# **You will build** attention over a sequence that no rank holds whole. Keys travel round a ring
# while the ranks compute, and gradients follow the keys. You balance the work, train a small model,
# and compare two more ways to share out a sequence.
#
# **You need** labs 02, 04 and 12. About 90 minutes. The training and the exchange of heads may wait
# for another day.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check, span, step

# %% [markdown]
# ## One device, and a long sequence
#
# In attention, each token has a **query**, a **key** and a **value**. The scores are the products of
# a query with all keys. The output of a token is a mean of all values, and the softmax of the scores
# gives the weights. With $T$ tokens there are $T^2$ scores for each head.

# %% [markdown]
# All tensors of this lab are [head, token, feature]. `attention` returns two things: the output, and
# the **log-sum-exp** of the scores, $\log \sum_j e^{s_j}$. You will soon need the log-sum-exp.


# %%
def attention(q, k, v, mask=None):
    """Return the output of q on these keys alone, and the log of the sum of the exponentials."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp().nan_to_num() @ v, lse


# %%
def whole(length, heads=8, width=64):
    """Return q, k and v of a whole sequence, the same on every rank."""
    drawn = torch.Generator().manual_seed(0)
    return [torch.randn(heads, length, width, generator=drawn) for _ in range(3)]


# %% [markdown]
# The machine of this lab computes 1 TFLOP/s. Only products of matrices take time here: fast kernels
# of real devices hide nearly all the rest.
#
# **Predict:** there are 2,048 tokens, and 8 heads of 64 features. A product of $a \times b$ with $b
# \times c$ takes $2abc$ operations, and attention has two products. How many ms does attention take?

# %% guess="alone_ms"
alone_ms = 2 * 2 * 8 * 2048**2 * 64 / 1e9  # your prediction, in ms


# %%
def alone(length):
    return attention(*whole(length))[0]


run = Cluster(1, machine="1 TFLOP/s").run(alone, 2048)
beside(alone_ms, run.trace.duration_ms, "ms on one device")

# %% [markdown]
# **Predict:** now the device has 300 MB. The scores take $8 \cdot 2048^2 \cdot 4$ B = 134 MB. Does
# attention fit?


# %%
def held(trace):
    """Return the most MB that rank 0 holds; 0 under torchrun, where no machine is modelled."""
    peak = trace.peak(0)
    return peak.total / 1e6 if peak else 0.0


small = Cluster(1, machine="1 TFLOP/s, 300 MB")
run = small.run(alone, 1024)
print(f"1,024 tokens: {held(run.trace):.1f} MB at most")

# %%
run = small.run(alone, 2048, expect_error=True)

# %% [markdown]
# **Notice:** three tensors of 134 MB would be alive at once: the scores, the scores minus
# the log-sum-exp, and the exponentials. Twice as many tokens need four times as much memory.
#
# ## Keys in blocks
#
# No token needs all scores at once. Take the keys in blocks, and join the outputs of the blocks.
# Each block's output is a mean over the keys of the block. Which weight does each mean get in the
# whole output?

# %% [markdown]
# The weights of a softmax are $e^{s_j}/Z$, with $Z = \sum_j e^{s_j}$ over *all* keys. Two blocks
# $a$ and $b$ have the sums $Z_a$ and $Z_b$, and together
#
# $$ Z = Z_a + Z_b \qquad o = \frac{Z_a}{Z}\, o_a + \frac{Z_b}{Z}\, o_b $$
#
# A score can be 1,000, and $e^{1000}$ is infinite. Therefore programs keep $\log Z$, the log-sum-exp.

# %% [markdown]
# A query may have seen no key yet. Then $Z = 0$, and $\log Z = -\infty$.


# %% tags=["answers"]
def unseen(q):
    """Return the output and the log-sum-exp of queries that have seen no key."""
    return torch.zeros_like(q), q.new_full((*q.shape[:-1], 1), -torch.inf)


# %% [markdown]
# ## Your turn: two means into one


# %% exercise="merge"
def merge(out, lse, more, more_lse):
    """Return attention on two sets of keys together: its output, and its log-sum-exp.

    The outputs on each set alone are out and more, [..., query, feature]. The log-sum-exps of the
    scores on each set are lse and more_lse, [..., query, 1]. A query that has seen no key has an
    output of 0 and a log-sum-exp of -inf. The arguments stay unchanged.
    """
    # BEGIN SOLUTION
    both = torch.logaddexp(lse, more_lse)
    a, b = ((each - both).exp().nan_to_num() for each in (lse, more_lse))
    return a * out + b * more, both
    # END SOLUTION


# %% check="merge"
check(merge)


# %%
def in_blocks(length, size):
    q, k, v = whole(length)
    out, lse = unseen(q)
    for keys, values in zip(k.split(size, 1), v.split(size, 1)):
        out, lse = merge(out, lse, *attention(q, keys, values))
    return out


def by_size(length, sizes):
    for size in sizes:
        with step():
            in_blocks(length, size)


# %% [markdown]
# **Predict:** which number falls with smaller blocks, the time or the memory?


# %%
def steps_of(run):
    """Return the trace of each step; no traces if the run was skipped, for too few ranks."""
    return [run.trace.step(k) for k in range(run.trace.steps)]


sizes = 1024, 512, 256, 128
for size, part in zip(sizes, steps_of(small.run(by_size, 2048, sizes))):
    print(f"blocks of {size:4} keys: {part.duration_ms:.4f} ms, {held(part):5.1f} MB at most")

# %% [markdown]
# **Notice:** the products are the same, and so is the time; but 2,048 tokens fit now.
# FlashAttention works like `in_blocks`, inside a GPU ([Dao et al.
# 2022](https://arxiv.org/abs/2205.14135)). The order of the blocks does not matter: keys may arrive
# in any order.

# %% [markdown]
# ## Four ranks
#
# Now four ranks have a quarter of the tokens each. A **share** is the part of a sequence on one rank:
# queries, keys and values of the rank's tokens. `places` lists the positions of each rank's tokens.


# %%
def contiguous(length, n):
    return list(torch.arange(length).tensor_split(n))


def mine(length, places=None, **sizes):
    """Return this rank's share of q, k and v."""
    at = (places or contiguous(length, dist.get_world_size()))[dist.get_rank()]
    return [x[:, at] for x in whole(length, **sizes)]


# %%
four = Cluster(4, machine="1 TFLOP/s", link="100 Gbit/s, 5 us")


def as_one_process(run, right, places=None):
    if None not in run.results:  # None under torchrun with too few ranks
        places = places or contiguous(right.shape[1], len(run.results))
        same = all(torch.allclose(y, right[:, at], atol=1e-5) for y, at in zip(run.results, places))
        print("every rank's output is that of one process:", same)


# %% [markdown]
# **Predict:** each rank computes the outputs of its own tokens. Which of q, k and v have to travel?
#
# <details><summary>An answer</summary>
#
# Keys and values have to travel, because every query needs every key and every value. Queries stay
# at home.
#
# </details>

# %% [markdown]
# In the simplest way, all ranks gather all keys, and then all values, by `Gathered` of lab 12. In an
# all-gather on a ring of four ranks, each rank sends three shares, one after the other. A message
# has a latency of 5 us, and the link carries 12.5 GB/s.
#
# **Predict:** how many ms does a rank wait for the two all-gathers?

# %% guess="gathered_ms"
gathered_ms = 2 * 3 * (8 * 512 * 64 * 4 / 12.5e9 + 5e-6) * 1e3  # your prediction: both, in ms

# %%
Gathered = carry("Gathered")


def gathered(length):
    q, k, v = mine(length)
    k, v = Gathered.apply(k), Gathered.apply(v)
    with span("attend"):  # a bar in the picture
        return attention(q, k, v)[0]


# %%
def exposed_ms(run):
    """Return the time in which the first rank communicates and computes nothing."""
    return run.trace.breakdown()[0].exposed_ns / 1e6


run = four.run(gathered, 2048)
as_one_process(run, attention(*whole(2048))[0])
print(f"{run.trace.duration_ms:.4f} ms, {held(run.trace):.1f} MB at most on a rank")
beside(gathered_ms, exposed_ms(run), "ms of waiting")

# %% [markdown]
# **Notice:** without the waiting, 2.15 ms are left: a quarter of the time of one device. But
# every rank waits for all keys and all values before the computation, and holds all of them at once.
# The keys of a very long sequence do not fit.

# %% [markdown]
# ## Keys in a ring
#
# With `merge`, a rank needs only one share of keys at a time. Let keys and values travel round a ring:
# each rank computes with a share of keys, and passes the share on to the next rank. A **hop** is the
# way of a share from one rank to the next. After three hops each rank has met all keys. The name of
# the method is **ring attention** ([Liu et al. 2023](https://arxiv.org/abs/2310.01889)).

# %% [markdown]
# `pass_on` starts the send and the receive of a hop, and returns a function that waits for both
# messages. A rank can compute before it calls this function.


# %% tags=["answers"]
def pass_on(x, size):
    """Start to pass x to the next rank, and to receive a tensor from the rank before.

    Return a function that waits for both and returns the received tensor, of `size` tokens.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    coming = x.new_empty(*x.shape[:-2], size, x.shape[-1])
    works = [dist.isend(x, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]

    def arrive():
        for work in works:
            work.wait()
        return coming

    return arrive


# %% [markdown]
# ## Your turn: the ring
#
# `attend` computes the attention to one share of keys. For now, every token sees all tokens. Later a
# mask will need the positions of the keys: therefore `attend` gets `source`, the rank of the keys.


# %%
def all_see_all(q, k, v, source):
    with span("attend"):
        return attention(q, k, v)


# %% exercise="ring_attention"
def ring_attention(q, k, v, attend, sizes):
    """Return the output and the log-sum-exp of the rank's queries on the keys of all ranks.

    q, k, v, [head, token, feature], are the rank's own; rank r has sizes[r] tokens.
    `attend(q, k, v, source)` returns output and log-sum-exp for the keys of rank `source` alone.
    Keys and values make n - 1 hops round the ring. While a rank computes, the next keys and values
    are on their way. A rank keeps one share of keys and values, and receives one more.
    """
    # BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, (out, lse) = torch.stack([k, v]), unseen(q)
    for hop in range(n):
        source = (rank - hop) % n
        if hop < n - 1:
            coming = pass_on(kv, sizes[(source - 1) % n])
        out, lse = merge(out, lse, *attend(q, *kv, source))
        if hop < n - 1:
            kv = coming()
    return out, lse
    # END SOLUTION


# %% check="ring_attention"
check(ring_attention)

# %% [markdown]
# For comparison, `waits_first` waits for the next keys before each computation:


# %%
def waits_first(q, k, v, attend, sizes):
    n, rank = dist.get_world_size(), dist.get_rank()
    kv = torch.stack([k, v])
    out, lse = unseen(q)
    for hop in range(n):
        if hop:
            kv = pass_on(kv, sizes[(rank - hop) % n])()
        out, lse = merge(out, lse, *attend(q, *kv, (rank - hop) % n))
    return out, lse


# %%
def in_a_ring(ring, length, **sizes):
    share, n = mine(length, **sizes), dist.get_world_size()
    return ring(*share, all_see_all, [length // n] * n)[0]


# %% [markdown]
# **Predict:** in your ring, a hop takes less time than the computation of one block. How long does the
# whole ring take?

# %% guess="ring_ms"
ring_ms = alone_ms / 4  # your prediction, in ms

# %%
from ddpkit.view import compare

waits, overlapped = (four.run(in_a_ring, ring, 2048) for ring in (waits_first, ring_attention))
as_one_process(overlapped, attention(*whole(2048))[0])
beside(ring_ms, overlapped.trace.duration_ms, "ms")
compare(waits, overlapped, labels=["waits first", "overlapped"], rank=0)

# %%
print(f"{held(overlapped.trace):.1f} MB at most on a rank")

# %% [markdown]
# **Notice:** the ring sends as many bytes as the all-gather, and hides all its messages
# behind the computation. A rank holds two shares of keys: it computes with one share, and receives
# the other share.

# %% [markdown]
# ## How long must a share be?
#
# A share has $c$ tokens, and $h$ heads of $w$ features. A device computes $F$ FLOP/s, and a link
# carries $B$ bytes/s. The computation with one share of keys, and a hop, take these times:
#
# $$ \text{compute } \frac{4 h w c^2}{F} \qquad \text{hop } \frac{2 h w c \cdot 4}{B} $$

# %% [markdown]
# **Predict:** the time of the computation grows with $c^2$, the time of a hop only with $c$. How
# many tokens does each rank need at least to hide a hop? Our link carries 12.5 GB/s, and has no
# latency in the next run.

# %% guess="enough"
enough = 2 * 1e12 / 12.5e9  # your prediction, in tokens


# %%
def rings(lengths):
    for length in lengths:
        with step():
            in_a_ring(ring_attention, 4 * length)


lengths = 64, 96, 128, 160, 192, 256, 512
run = Cluster(4, machine="1 TFLOP/s", link="100 Gbit/s, 0 us").run(rings, lengths)
parts = steps_of(run)
for length, part in zip(lengths, parts):
    exposed = part.breakdown()[0].exposed_ns / 1e6
    print(f"{length:4} tokens a rank: {part.duration_ms:.4f} ms, waits {exposed:.4f} ms")

# %%
hidden = [n for n, part in zip(lengths, parts) if part.breakdown()[0].exposed_ns < 100]
if hidden:
    beside(enough, hidden[0], "tokens")

# %% [markdown]
# **Notice:** the condition is $c \ge 2F/B$; the numbers of heads and features cancel. Table
# 2 of the paper on ring attention gives the smallest $c$ for real devices. The table is for bfloat16,
# with 2 bytes for each element, so the condition is $c \ge F/B$.

# %%
for device, flops, bytes_a_second, said in (
    ("A100, NVLink", 312e12, 300e9, 1.0),
    ("A100, InfiniBand", 312e12, 12.5e9, 24.5),
    ("TPU v4", 275e12, 268e9, 1.0),
    ("TPU v5e", 196e12, 186e9, 1.1),
):
    ours = flops / bytes_a_second / 1e3
    print(f"{device:16} {ours:5.2f} thousand tokens; the paper says {said}")

# %% [markdown]
# **Predict before you read on:** one of the paper's four numbers differs from our number by more
# than rounding. Is our number right, or the paper's number?
#
# <details><summary>An answer</summary>
#
# Our number is right: 312 / 12.5 is 24.96, and the paper prints 24.5. The paper's other three
# numbers are the quotients of its speeds, so 24.5 is probably a mistake.
#
# </details>

# %% [markdown]
# ## A token sees the tokens before
#
# A language model predicts the next token. Therefore a token must see only itself and the tokens
# before: attention has a **causal mask**. Half of all pairs of a query and a key are not needed.
#
# **Predict:** four ranks have shares in the order of the sequence. Which rank is done first?

# %% [markdown]
# A **block** has the scores of all queries of one share with all keys of one share. A mask does not
# make a product shorter. Therefore `tiles` cuts each block into four **tiles**, and leaves out each
# tile in which no query sees a key. Only tiles on the diagonal need a mask.


# %%
def tiles(mine, theirs):
    """Yield rows, columns and mask of each of four tiles in which some query sees a key."""
    for rows in torch.arange(len(mine)).tensor_split(2):
        for columns in torch.arange(len(theirs)).tensor_split(2):
            if len(rows) and len(columns) and theirs[columns[0]] <= mine[rows[-1]]:
                hidden = theirs[columns[-1]] > mine[rows[0]]
                mask = theirs[columns] <= mine[rows][:, None] if hidden else None
                yield slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1), mask


# %%
def causal(places):
    """Return an `attend` with a causal mask."""

    def attend(q, k, v, source):
        with span("attend"):
            out, lse = unseen(q)
            for rows, columns, mask in tiles(places[dist.get_rank()], places[source]):
                part = attention(q[:, rows], k[:, columns], v[:, columns], mask)
                out[:, rows], lse[:, rows] = merge(out[:, rows], lse[:, rows], *part)
            return out, lse

    return attend


# %% [markdown]
# The picture shows all queries and keys of 64 tokens, and the rank that computes each tile:

# %%
from ddpkit.view import show_attention

show_attention(contiguous(64, 4))

# %% [markdown]
# **Predict:** a whole block takes 0.5369 ms. In a block on the diagonal, three of four tiles are
# computed. The last rank has three whole blocks, and a block on the diagonal. How long does the run
# take?

# %% guess="in_order_ms"
in_order_ms = (3 + 3 / 4) * 0.5369  # your prediction, in ms


# %%
def causal_ring(places, length, **sizes):
    share = mine(length, places, **sizes)
    return ring_attention(*share, causal(places), [len(at) for at in places])[0]


in_order = four.run(causal_ring, contiguous(2048, 4), 2048)
beside(in_order_ms, in_order.trace.duration_ms, "ms")

# %%
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

seen_alone = scaled_dot_product_attention(*whole(2048), is_causal=True)
as_one_process(in_order, seen_alone)

# %% [markdown]
# ## Your turn: fair shares
#
# The last tokens see the most keys, and the first tokens see the fewest keys. Cut the sequence into
# $2n$ chunks, and give each rank an early chunk and a late chunk. This division is called **zigzag**.


# %% exercise="zigzag"
def zigzag(length, n):
    """Return the positions of each rank's tokens: n increasing tensors of int64.

    Each position is on one rank, the sizes differ by at most 2, and a rank has at most two
    stretches of the sequence. With a causal mask, all ranks have about the same number of pairs of
    a query and a key. length is 2n or more.
    """
    # BEGIN SOLUTION
    chunks = torch.arange(length).tensor_split(2 * n)
    return [torch.cat([chunks[rank], chunks[-1 - rank]]) for rank in range(n)]
    # END SOLUTION


# %% check="zigzag"
check(zigzag)

# %% [markdown]
# In zigzag, each rank has an early row of tiles and a late row:

# %%
show_attention(zigzag(64, 4))

# %% [markdown]
# **Predict:** each rank computes three of four tiles in one block, and two of four tiles in each of
# the other three blocks. How many ms does the run take?

# %% guess="balanced_ms"
balanced_ms = (3 / 4 + 3 * 2 / 4) * 0.5369  # your prediction, in ms

# %%
balanced = four.run(causal_ring, zigzag(2048, 4), 2048)
as_one_process(balanced, seen_alone, zigzag(2048, 4))
beside(balanced_ms, balanced.trace.duration_ms, "ms")
compare(in_order, balanced, labels=["in order", "zigzag"], rank=None)

# %% [markdown]
# **Notice:** with shares in order, the bars of the ranks look like a staircase, and the last
# rank decides the time. In zigzag, all ranks compute for the same time. Both runs send equally many
# bytes.
#
# The published code of zigzag rings is
# [ring-flash-attention](https://github.com/zhuzilin/ring-flash-attention). The README there compares
# eight GPUs with one GPU.

# %% [markdown]
# **Predict:** in order, the last of eight ranks computes $7 + \frac{3}{4}$ blocks. All eight ranks
# together compute $28 + 8 \cdot \frac{3}{4}$ blocks. How fast is the ring, in percent of a ring with
# perfect balance?

# %% guess="reached"
reached = (7 * 8 / 2 + 8 * 3 / 4) / 8 / 7.75 * 100  # your prediction, in %

# %%
eight = Cluster(8, machine="1 TFLOP/s", link="100 Gbit/s, 5 us")
runs = [eight.run(causal_ring, f(4096, 8), 4096, heads=2) for f in (contiguous, zigzag)]
for name, run in zip(("in order", "zigzag"), runs):
    print(f"{name:8} {run.trace.duration_ms:.4f} ms")
if runs[1].trace.duration_ms:
    beside(reached, 100 * runs[1].trace.duration_ms / runs[0].trace.duration_ms, "% of its speed")

# %% [markdown]
# **Notice:** with shares in order, the forward reaches 52.1 % of the ideal speed on eight
# H800, and 51.4 % on eight A100, says the README. In zigzag, the numbers are 85.2 % and 81.7 %. The
# uneven shares of work explain the numbers with shares in order, up to a few percent. In zigzag, the
# shares are even, so the missing speed must have other causes, such as exposed communication.

# %% [markdown]
# ## Backward, and the memory of autograd
#
# Training needs the gradients of q, k and v. Autograd can send gradients back by itself, if
# `pass_on` becomes a function of autograd: the backward passes the gradient to the previous rank.


# %%
class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, size):
        ctx.size = x.shape[-2]
        return pass_on(x, size)()

    @staticmethod
    def backward(ctx, gradient):
        rank, n = dist.get_rank(), dist.get_world_size()
        coming = gradient.new_empty(*gradient.shape[:-2], ctx.size, gradient.shape[-1])
        works = [dist.isend(gradient.contiguous(), (rank - 1) % n)]
        works += [dist.irecv(coming, (rank + 1) % n)]
        for work in works:
            work.wait()
        return coming, None


# %%
def by_autograd(attend, length, **sizes):
    q, k, v = (x.requires_grad_() for x in mine(length, **sizes))
    n, rank = dist.get_world_size(), dist.get_rank()
    with step():
        kv = torch.stack([k, v])
        out, lse = unseen(q)
        for hop in range(n):
            out, lse = merge(out, lse, *attend(q, *kv, (rank - hop) % n))
            if hop < n - 1:
                kv = Passed.apply(kv, length // n)
        out.backward(torch.ones_like(out))
    return q.grad, k.grad, v.grad


# %% [markdown]
# Take shares in the order of the sequence. Then the queries of rank 0 see none of the other ranks'
# keys. `skipping` leaves out these blocks.
#
# **Predict:** rank 0 passes on keys, but does not use them. Does the backward of rank 0 pass on a
# gradient?


# %%
def skipping(q, k, v, source):
    places = contiguous(4 * q.shape[1], 4)
    mask = places[source] <= places[dist.get_rank()][:, None]
    return attention(q, k, v, mask) if mask.any() else unseen(q)


run = four.run(by_autograd, skipping, 64, heads=1, width=8, expect_error=True)

# %% [markdown]
# **Notice:** the output of rank 0 does not depend on the received keys. The graph of rank 0
# has no `Passed`, and the backward of rank 0 sends no message. All other ranks wait. If a mask
# replaces the skipping, the run ends without an error. Masked scores become -1e9: if all scores of a
# query were -inf, the result would be nan.


# %%
def masking(q, k, v, source):
    places = contiguous(4 * q.shape[1], 4)
    mask = places[source] <= places[dist.get_rank()][:, None]
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp() @ v, lse


masked = four.run(by_autograd, masking, 2048)
print(f"{masked.trace.duration_ms:.4f} ms, {held(masked.trace):.1f} MB at most on a rank")

# %% [markdown]
# **Notice:** now the ranks compute all blocks, even blocks in which no query sees a key. For
# the backward, autograd keeps the keys of all ranks and the exponentials of all blocks. A ring
# should avoid this work and this memory.
#
# ## A backward of your own
#
# For the backward, keep only q, k, v, the output and the log-sum-exp. Let the keys go round once
# more, and compute the scores again.

# %% [markdown]
# FlashAttention's formula gives the gradients for one tile. Here $P = e^{S - \mathrm{lse}}$, $dO$ is
# the gradient of the output, and $\delta$ is the sum of $dO \cdot O$ over the features:
#
# $$ dV = P^T dO \qquad dS = P \cdot (dO\,V^T - \delta) \qquad dQ = dS\,K/\sqrt{w} \qquad
#    dK = dS^T Q/\sqrt{w} $$
#
# In the code, `of_out` is the gradient of `out`, and `of_scores` the gradient of the scores.


# %%
def attention_back(q, k, v, of_out, lse, delta, mask=None):
    """Return the parts of a tile in the gradients of q, k and v."""
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    p = (scores - lse).exp()
    of_scores = p * (of_out @ v.mT - delta) * scale
    return of_scores @ k, of_scores.mT @ q, p.mT @ of_out


# %%
def causal_back(places, out, lse, of_out):
    """Return `back`, the backward of the function that `causal(places)` returns."""
    delta = (of_out * out).sum(-1, keepdim=True)

    def back(q, k, v, source):
        with span("back"):
            sums = [torch.zeros_like(each) for each in (q, k, v)]
            for rows, columns, mask in tiles(places[dist.get_rank()], places[source]):
                tile = q[:, rows], k[:, columns], v[:, columns], of_out[:, rows]
                parts = attention_back(*tile, lse[:, rows], delta[:, rows], mask)
                for total, part, where in zip(sums, parts, (rows, columns, columns)):
                    total[:, where] += part
            return sums

    return back


# %% [markdown]
# ## Your turn: gradients follow the keys
#
# The gradient of q stays at home. Follow the gradient of rank 0's keys: rank 0 computes the first
# part, and keeps that part. Rank 1 gets the keys, and starts a sum. Ranks 2 and 3 add a part each,
# and rank 3 passes the sum home, to rank 0. The sum starts its way one hop later than the keys.


# %% exercise="ring_gradients"
def ring_gradients(q, k, v, back, sizes):
    """Return the gradients of the rank's q, k and v.

    `back(q, k, v, source)` takes the rank's q and the keys and values of rank `source`, and returns
    the parts of this block in three gradients: of q, k and v. Keys and values make n - 1 hops round
    the ring. Their gradient follows, grows on each rank, and comes home. While a rank computes,
    keys and gradients are on their way. A rank keeps a part of its own share's gradient, and one
    more gradient, which travels.
    """
    # BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, of_q, travelling = torch.stack([k, v]), torch.zeros_like(q), None
    for hop in range(n):
        source = (rank - hop) % n
        size = sizes[(source - 1) % n]
        if hop < n - 1:
            coming = pass_on(kv, size)
        part, *theirs = back(q, *kv, source)
        of_q, theirs = of_q + part, torch.stack(theirs)
        if hop == 0:
            own = theirs
        else:
            theirs = theirs if hop == 1 else theirs + travelling()
            travelling = pass_on(theirs, size)
        if hop < n - 1:
            kv = coming()
    return of_q, *(own if n == 1 else own + travelling())
    # END SOLUTION


# %% check="ring_gradients"
check(ring_gradients)


# %%
class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, places):
        ctx.places, ctx.sizes = places, [len(at) for at in places]
        out, lse = ring_attention(q, k, v, causal(places), ctx.sizes)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, of_out):
        *qkv, out, lse = ctx.saved_tensors
        back = causal_back(ctx.places, out, lse, of_out)
        return *ring_gradients(*qkv, back, ctx.sizes), None


# %% [markdown]
# **Predict:** the forward in zigzag takes 1.208 ms, for two products in each tile. The backward has
# five products: the scores again, and four for the gradients. How long do forward and backward take
# together?

# %% guess="both_ms"
both_ms = (2 + 5) / 2 * 1.208  # your prediction, in ms


# %%
def with_backward(places, length):
    q, k, v = (x.requires_grad_() for x in mine(length, places))
    out = RingAttention.apply(q, k, v, places)
    out.backward(torch.ones_like(out))
    return q.grad, k.grad, v.grad


# %%
from ddpkit import show

run = four.run(with_backward, zigzag(2048, 4), 2048)
beside(both_ms, run.trace.duration_ms, "ms")
show(run)


# %%
def gradients_alone(length):
    q, k, v = (x.requires_grad_() for x in whole(length))
    out = scaled_dot_product_attention(q, k, v, is_causal=True)
    out.backward(torch.ones_like(out))
    return q.grad, k.grad, v.grad


if None not in run.results:  # None under torchrun with too few ranks
    for name, right, shares in zip("qkv", gradients_alone(2048), zip(*run.results)):
        found = torch.empty_like(right)
        found[:, torch.cat(zigzag(2048, 4))] = torch.cat(shares, dim=1)
        same = torch.allclose(found, right, atol=1e-4)
        print(f"the gradient of {name} is that of one process: {same}")

# %%
for name, each in (("autograd's", masked), ("yours", run)):
    sent = each.trace.traffic.sent(0) / 1e6
    print(f"{name:10} {sent:.1f} MB sent by rank 0, {held(each.trace):.1f} MB held at most")

# %% [markdown]
# **Notice:** your backward sends more bytes and computes the scores twice, but holds about a
# quarter of the memory. The last hop, which brings the gradients home, is exposed, because no
# computation is left that could hide the hop.

# %% [markdown]
# ## A whole training
#
# Now put the ring into a model, which predicts the next letter of a text. Tokens meet only in the
# attention. Still, two more parts are easy to get wrong: the targets and the loss.

# %% [markdown]
# **Predict:** a rank has positions 0 to 7 and 56 to 63. Which token is the target at position 7? The
# model adds an embedding of each position: which position belongs to the rank's ninth token?
#
# ## Your turn: inputs, targets, positions


# %% exercise="own_tokens"
def own_tokens(tokens, places, rank):
    """Return the inputs, the targets and the positions of the rank's tokens.

    `tokens` is the whole sequence, and places[r] has the positions of rank r's tokens. The target
    of a token is the next token of the sequence; the target of the last token is -100.
    """
    # BEGIN SOLUTION
    targets = torch.cat([tokens[1:], tokens.new_tensor([-100])])
    at = places[rank]
    return tokens[at], targets[at], at
    # END SOLUTION


# %% check="own_tokens"
check(own_tokens)

# %% [markdown]
# ## Your turn: a mean over all ranks
#
# The loss is the mean over all counted tokens. A prompt, for example, is not counted. Therefore some
# ranks have fewer counted tokens than other ranks.
#
# **Predict:** a rank has no counted token. Which number is the mean of the rank's losses?
#
# <details><summary>An answer</summary>
#
# The mean is nan, since 0 / 0 has no value. Then the averaged gradients are nan on all ranks.
#
# </details>


# %% exercise="share_of_loss"
def share_of_loss(losses, counted):
    """Return the number on which the rank calls backward.

    `losses` and `counted`, [token], are the rank's own; only losses of counted tokens matter. The
    ranks average their gradients afterwards. The average has to be the gradient of the mean loss of
    all counted tokens on all ranks; if no token is counted on any rank, the number is 0.
    """
    # BEGIN SOLUTION
    total = counted.sum()
    dist.all_reduce(total)
    return losses[counted].sum() * dist.get_world_size() / total.clamp(min=1)
    # END SOLUTION


# %% check="share_of_loss"
check(share_of_loss)


# %%
class Tiny(torch.nn.Module):
    def __init__(self, attend):
        super().__init__()
        torch.manual_seed(0)
        self.attend = attend
        self.token, self.place = torch.nn.Embedding(128, 32), torch.nn.Embedding(256, 32)
        self.qkv, self.head = torch.nn.Linear(32, 96), torch.nn.Linear(32, 128)

    def forward(self, tokens, at):
        x = self.token(tokens) + self.place(at)
        q, k, v = self.qkv(x).view(-1, 3, 4, 8).permute(1, 2, 0, 3)  # each [head, token, feature]
        return self.head(x + self.attend(q, k, v).transpose(0, 1).flatten(1))


# %%
from pydoc_data.topics import topics  # a text that comes with Python: the pages of its help()

letters = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
text = torch.tensor(list(letters[5000:5256]))
places = zigzag(256, 4)


def in_zigzag(q, k, v):
    return RingAttention.apply(q, k, v, places)


def summed(x):
    dist.all_reduce(x)
    return x


# %% [markdown]
# The first 160 tokens are a prompt and are not counted. Every rank calls `train` with two functions:
# `take` returns the rank's inputs, targets and positions, and `share` returns the number on which
# the rank calls backward.


# %%
def train(take, share):
    net, losses, rank = Tiny(in_zigzag), [], dist.get_rank()
    inputs, targets, at = take(text, places, rank)
    counted = (places[rank] >= 160) & (targets != -100)
    for _ in range(4):
        net.zero_grad()
        each = cross_entropy(net(inputs, at), targets, reduction="none")
        share(each, counted).backward()
        losses.append((summed(each[counted].sum().detach()) / summed(counted.sum())).item())
        with torch.no_grad():
            for p in net.parameters():
                p -= 1.0 * summed(p.grad) / 4
    return losses, torch.nn.utils.parameters_to_vector(net.parameters()).detach()


# %% [markdown]
# The **twin** is the same training in a single process, without ranks:


# %%
def seen_by_one(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def one_process():
    net, losses = Tiny(seen_by_one), []
    for _ in range(4):
        net.zero_grad()
        logits = net(text[:-1], torch.arange(255))
        loss = cross_entropy(logits[160:], text[161:])
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for p in net.parameters():
                p -= 1.0 * p.grad
    return losses, torch.nn.utils.parameters_to_vector(net.parameters()).detach()


# %% [markdown]
# The next cell makes three mistakes that occurred in real code: the loss is the mean over the rank's
# own tokens; the targets are shifted within a share; the positions begin at 0 on each rank.


# %%
def own_mean(losses, counted):
    return losses[counted].mean()


def shifted_late(tokens, places, rank):
    inputs, _, at = own_tokens(tokens, places, rank)
    return inputs, torch.cat([inputs[1:], inputs.new_tensor([-100])]), at


def from_zero(tokens, places, rank):
    inputs, targets, at = own_tokens(tokens, places, rank)
    return inputs, targets, torch.arange(len(at))


# %% [markdown]
# **Predict:** which of the four trainings learn? Can you find the wrong trainings by the losses?

# %%
WAYS_TO_TRAIN = {
    "right": (own_tokens, share_of_loss),
    "own mean": (own_tokens, own_mean),
    "shifted late": (shifted_late, share_of_loss),
    "positions from 0": (from_zero, share_of_loss),
}


def all_trainings():
    return [train(take, share) for take, share in WAYS_TO_TRAIN.values()]


# %%
losses, right = one_process()
print(f"{'one process':16}", *(f"{loss:.4f}" for loss in losses))
for name, (losses, found) in zip(WAYS_TO_TRAIN, four.run(all_trainings).results[0] or []):
    off = (found - right).abs().max()
    print(f"{name:16}", *(f"{loss:.4f}" for loss in losses), f"  parameters off by {off:.1g}")

# %% [markdown]
# **Notice:** all four trainings learn, and a wrong training can even end with a lower loss.
# A loss curve does not show the mistake. Only the comparison with the twin shows the mistake: in the
# right training, the ranks have the twin's parameters, up to rounding.

# %% [markdown]
# **In words:** the losses look alike. Which test would have shown the mistakes on the first day?

# %% [markdown]
# *Your words:*

# %% [markdown]
# <details><summary>Where these mistakes were made</summary>
#
# The loss of a share was wrong in Megatron-LM (issues 673 and 906). Targets were shifted within a
# share in transformers (pull requests 36607 and 48570). EasyContext did not support a length that
# $2n$ does not divide (issue 47).
#
# </details>

# %% [markdown]
# ## Exchange heads
#
# Heads are independent of each other. Therefore ranks can also exchange heads for tokens: each rank
# gives away most of the heads, and gets *all tokens* of the remaining heads. Then every rank computes
# plain attention, and the outputs travel back. The method is known as DeepSpeed-Ulysses ([Jacobs et
# al. 2023](https://arxiv.org/abs/2309.14509)).

# %% [markdown]
# ## Your turn: to heads and back
#
# The exchange is a single `all_to_all_single`: each rank sends one part of a flat tensor to each
# rank. Two lists give the sizes of the incoming and of the outgoing parts. (`dist.all_to_all` takes
# lists of tensors, but with gloo all tensors need the same size.) `ByTokens`, the class after yours,
# calls your `backward` without your `forward`: then `ctx` has only `sizes`.


# %% exercise="ByHeads"
class ByHeads(torch.autograd.Function):
    """Forward: from all heads of the rank's tokens to the rank's heads of all tokens.

    x is [head, token, feature]. Rank r has sizes[r] tokens, and gets the r-th of n equal parts of
    the heads. Tokens come in the order of the ranks. Backward: gradients go the way back; use
    nothing of ctx except ctx.sizes.
    """

    @staticmethod
    def forward(ctx, x, sizes):
        ctx.sizes, n = sizes, dist.get_world_size()
        # BEGIN SOLUTION
        heads, _, width = x.shape
        parts = [heads // n * size * width for size in sizes]
        coming = x.new_empty(sum(parts))
        dist.all_to_all_single(coming, x.contiguous().flatten(), parts)
        return torch.cat([p.view(heads // n, -1, width) for p in coming.split(parts)], dim=1)
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        heads, _, width = gradient.shape
        going = [p.flatten() for p in gradient.split(list(ctx.sizes), dim=1)]
        coming = torch.cat([going[dist.get_rank()]] * len(going))
        dist.all_to_all_single(coming, torch.cat(going), None, [len(p) for p in going])
        return coming.view(heads * len(going), -1, width), None
        # END SOLUTION


# %% check="ByHeads"
check(ByHeads)


# %% [markdown]
# `ByTokens` brings the outputs back. Its forward is your backward, and its backward is your forward:


# %%
class ByTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sizes):
        ctx.sizes = sizes
        return ByHeads.backward(ctx, x)[0]

    @staticmethod
    def backward(ctx, gradient):
        return ByHeads.forward(ctx, gradient, ctx.sizes), None


# %% [markdown]
# ## Fewer key heads
#
# In many models, several query heads share a **key head**, that is, the same keys and values.
# A ring carries only key heads. With exchanged heads, queries and outputs travel too, and each rank
# needs a key head: if there are fewer key heads than ranks, key heads are repeated.


# %% exercise="bytes_sent"
def bytes_sent(way, tokens, heads, kv_heads, width, n, number=2):
    """Return the bytes that each rank sends for the attention of one layer, forward: an int.

    `way` is "gather" (all keys and values to all ranks), "ring", or "heads" (exchanged queries,
    keys and values, and outputs back). Each of n ranks has tokens / n tokens. A token has `width`
    numbers of `number` bytes in a head. For "heads", fewer than n key heads are repeated until
    there are n. All divisions come out even.
    """
    # BEGIN SOLUTION
    share = tokens // n * width * number  # bytes of one head of a rank's tokens
    if way == "heads":
        return (n - 1) * share * (2 * heads + 2 * max(kv_heads, n)) // n
    return (n - 1) * share * 2 * kv_heads
    # END SOLUTION


# %% check="bytes_sent"
check(bytes_sent)

# %% [markdown]
# Now run all three ways, with 1,024 tokens of 64 features, and different numbers of heads.


# %%
def repeated(heads, x):
    """Repeat the key heads until there are `heads` of them."""
    return x.repeat_interleave(heads // len(x), dim=0)


def by_gather(q, k, v):
    k, v = (repeated(len(q), Gathered.apply(x)) for x in (k, v))
    return all_see_all(q, k, v, None)[0]


def by_ring(q, k, v):
    def attend(q, k, v, source):
        return all_see_all(q, repeated(len(q), k), repeated(len(q), v), source)

    return ring_attention(q, k, v, attend, [q.shape[1]] * dist.get_world_size())[0]


# %%
def by_heads(q, k, v):
    n = dist.get_world_size()
    sizes, least = [q.shape[1]] * n, max(len(k), n)
    k, v = repeated(least, k), repeated(least, v)
    q, k, v = (ByHeads.apply(x, sizes) for x in (q, k, v))
    out, _ = all_see_all(q, repeated(len(q), k), repeated(len(q), v), None)
    return ByTokens.apply(out, sizes)


# %%
WAYS = {"gather": by_gather, "ring": by_ring, "heads": by_heads}
LAYERS = [(way, *heads) for heads in ((8, 8), (8, 2), (16, 2)) for way in WAYS]


def all_layers(length):
    for way, heads, kv_heads in LAYERS:
        (q, _, _), (_, k, v) = (mine(length, heads=each) for each in (heads, kv_heads))
        with step():
            WAYS[way](q, k, v)


# %% [markdown]
# **Predict:** there are 8 heads and 8 key heads. Which of the three ways sends the fewest bytes?
# Which way is fastest?

# %% guess="by_heads_mb"
by_heads_mb = 3 / 4 * 4 * 8 * 256 * 64 * 4 / 1e6  # your prediction: q, k, v and outputs, in MB

# %%
TIMES = {"all_gather": 3, "all_to_all_single": 3 / 4}  # an all-gather counts one share (lab 12)


def megabytes(part):
    counts = part.traffic.collectives(0)
    of_collectives = sum(TIMES[name] * each.bytes for name, each in counts.items())
    return (of_collectives + part.traffic.sent(0)) / 1e6


table = dict(zip(LAYERS, steps_of(four.run(all_layers, 1024))))
for (way, heads, kv_heads), part in table.items():
    about = f"{heads:2} heads, {kv_heads} key heads, {way:6}: {megabytes(part):.2f} MB sent"
    print(f"{about}, {part.duration_ms:.4f} ms, {held(part):4.1f} MB held")

# %%
if table:  # empty under torchrun with too few ranks
    beside(by_heads_mb, megabytes(table["heads", 8, 8]), "MB sent by heads")
right = [bytes_sent(way, 1024, *heads, 64, 4, 4) / 1e6 for way, *heads in table]
print("your formula counts the bytes of each run:", right == list(map(megabytes, table.values())))

# %% [markdown]
# **Notice:** with 8 key heads, exchanged heads send half of the ring's bytes, but hide none
# of these bytes: the ring is faster. With 2 key heads, the ring also sends fewer bytes. The gather
# sends as many bytes as the ring, and holds the most memory.

# %% [markdown]
# Suppose that $G$ query heads share a key head, and that there are at least $n$ key heads. Then a
# ring sends $n/(G + 1)$ times as many bytes as an exchange of heads. With $n = G + 1$ ranks, both
# ways send equally many bytes.

# %% [markdown]
# Llama 3 405B has 128 heads and 8 key heads of 128 features, and was trained on sequences of 131,072
# tokens with 16 ranks for each sequence ([Llama Team 2024](https://arxiv.org/abs/2407.21783),
# section 3.3.2). The sequence has 32 chunks, and rank i has the chunks i and 31 − i.
#
# **Predict:** which of the three ways did Llama's team choose?

# %%
for way in WAYS:
    print(f"{way:6} {bytes_sent(way, 131_072, 128, 8, 128, 16) / 1e6:.0f} MB sent for one layer")

# %% [markdown]
# **Notice:** Llama's team chose the gather. Keys and values are small compared with queries,
# since 16 query heads share a key head. A gather also suits every kind of mask. Megatron-Core
# gathers as well. Transformer Engine has all three ways, and calls zigzag "dual chunk swap".

# %% [markdown]
# **In words:** a model has 32 heads and 8 key heads of the same width, in bfloat16. You train the
# model causally on 65,536 tokens over 16 ranks, with 200 Gbit/s between any two ranks. Which of the
# three ways do you take? Which number of your device decides the question?

# %% [markdown]
# *Your words:*

# %% [markdown]
# torch has `context_parallel`, an experimental ring for attention on GPUs. The function balances the
# work by zigzag. With this balance, the function refuses attention without a causal mask. The
# function does not run on a CPU.

# %% [markdown]
# ## The way out
#
# This program exchanges heads in plain torch, forward and backward.
#
# ```python
# import torch, torch.distributed as dist
# from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange
# from torch.nn.functional import scaled_dot_product_attention
#
# dist.init_process_group("gloo")
# rank, n = dist.get_rank(), dist.get_world_size()
#
# def to_heads(x):  # [head, token / n, feature] to [head / n, token, feature]
#     parts = exchange(x, None, None, dist.group.WORLD)
#     return parts.unflatten(0, (n, -1)).transpose(0, 1).flatten(1, 2)
# def to_tokens(x):  # the way back
#     parts = x.unflatten(1, (n, -1)).transpose(0, 1).flatten(0, 1).contiguous()
#     return exchange(parts, None, None, dist.group.WORLD)
#
# torch.manual_seed(rank)
# qkv = torch.randn(3, 4, 128, 16, requires_grad=True)  # this rank's tokens
# y = to_tokens(scaled_dot_product_attention(*map(to_heads, qkv), is_causal=True))
# y.square().mean().backward()
# print("rank", rank, "output", tuple(y.shape), "gradient", qkv.grad.norm().item())
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - joined attention on two sets of keys, in little memory;
# - sent keys round a ring, and hidden every hop;
# - balanced a causal mask with two chunks for each rank;
# - sent gradients round the ring after the keys;
# - trained on a shared sequence, with the parameters of the twin;
# - exchanged heads, and counted bytes.
#
# **Next:** can a model have many parameters, and use only a few of the parameters for each token?

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 16_context.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
