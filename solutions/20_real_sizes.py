# ---
# jupyter:
#   ddpkit:
#     builds: "the plan of a real training on paper: FLOPs, memory, limits, profiles and the choice of a plan"
#     minutes: 90
#     needs: labs 02, 04, 11, 12, 13, 14 and 18
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
# # 20 · Real sizes
#
# **You will build** the plan of a real training on paper: its FLOPs, its memory, the number of
# tokens that hides its messages, and the choice among hundreds of plans. On this computer, you
# compare your numbers with runs of 8 billion parameters on 8 ranks, and of 70 billion parameters on
# 512 ranks.
#
# **You need** labs 02, 04, 11, 12, 13, 14 and 18. About 90 minutes. Profiles and plans may wait for
# another day.

# %%
from ddpkit import Cluster, beside, carry, check

# %%
import math, itertools
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

# %% [markdown]
# ## A model is six numbers
#
# A **block** is one layer of a transformer: attention and an MLP. `products` are the matrices of a
# block. Llama has fewer key heads than heads, and an MLP of three matrices.


# %% tags=["answers"]
@dataclass(frozen=True)
class Sizes:
    """The sizes of a transformer.

    gated: True for an MLP of three matrices, as in Llama; False for an MLP of two matrices.
    tied: True if the head and the embedding share one matrix.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    gated: bool = True
    tied: bool = False


# %% [markdown]
# A shape adds counts to the sizes: `block` is the number of parameters in one block, and `root` is
# the number of parameters outside the blocks, which are the embedding, the head and the last norm.


# %% tags=["answers"]
class Shape(Sizes):
    """Sizes with counts, and with (in, out) of each matrix of a block in the order of a forward."""

    @property
    def products(self):
        d, kv, h = self.width, self.width // self.heads * self.kv_heads, self.hidden
        if self.gated:
            return [(d, d), (d, kv), (d, kv), (d, d), (d, h), (d, h), (h, d)]
        return [(d, d + 2 * kv), (d, d), (d, h), (h, d)]

    block = property(lambda self: sum(n * m for n, m in self.products) + 2 * self.width)
    root = property(lambda self: (2 - self.tied) * self.vocab * self.width + self.width)
    parameters = property(lambda self: self.layers * self.block + self.root)


# %% tags=["answers"]
LLAMA_8B = Shape(32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = Shape(80, 8192, 64, 8, 28672, 128256)
LLAMA_405B = Shape(126, 16384, 128, 8, 53248, 128256)
MPT_70B = Shape(80, 8192, 64, 64, 32768, 50368, gated=False, tied=True)

# %%
for shape in (LLAMA_8B, LLAMA_70B, LLAMA_405B, MPT_70B):
    print(f"{shape.parameters:,} parameters, {shape.block:,} in a block")

# %% [markdown]
# The next cells make a model of these sizes in plain torch. The norm is one operation, as on a GPU.


# %%
def norm(width):
    return nn.LayerNorm(width, bias=False)


def attended(shape, y, qkv):
    """Return causal attention on y [sequence, token, feature]; qkv has one product or three."""
    parts = [product(y) for product in qkv]
    parts = parts if len(parts) == 3 else parts[0].chunk(3, -1)
    size = shape.width // shape.heads
    q, k, v = (part.unflatten(-1, (-1, size)).transpose(1, 2) for part in parts)
    if shape.kv_heads < shape.heads:
        k, v = (part.repeat_interleave(shape.heads // shape.kv_heads, 1) for part in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).flatten(2)


# %%
class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.before, self.after = norm(shape.width), norm(shape.width)
        self.products = nn.ModuleList(nn.Linear(n, m, bias=False) for n, m in shape.products)

    def forward(self, x):
        products = list(self.products)
        gate = products.pop(-2) if self.shape.gated else None
        *qkv, out, up, down = products
        x = x + out(attended(self.shape, self.before(x), qkv))
        y = self.after(x)
        return x + down(F.silu(up(y)) * gate(y) if gate else F.gelu(up(y)))


# %%
class Model(nn.Module):
    def __init__(self, shape, wrap=lambda block: block):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(wrap(Block(shape)) for _ in range(shape.layers))
        self.norm = norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# %% [markdown]
# ## FLOPs
#
# A multiplication and an addition are 2 FLOPs. A well-known estimate is **6ND**: six FLOPs for each
# parameter and each token. This lab counts attention in full, although the mask hides half of the
# pairs. A backward has twice the FLOPs of its forward. Embedding, norms and element-wise work count
# as 0 FLOPs.
#
# **Model FLOPs** leave out repeated work. **Hardware FLOPs** also include the products that
# checkpointing computes again (lab 18).

# %% [markdown]
# **Predict:** Llama 8B trains on two sequences of 8,192 tokens. Each of its 7.50 billion parameters
# outside the embedding takes 6 FLOPs for each token. In each layer, scores and sums of values take 4
# · length · width FLOPs for each token in the forward. How many PFLOP does a step take?

# %% guess="pflop"
pflop = (6 * 7.50e9 + 3 * 32 * 4 * 8192 * 4096) * 16384 / 1e15  # your prediction, in PFLOP

# %% [markdown]
# ## Your turn: model_flops


# %% exercise="model_flops"
def model_flops(shape, sequences, length, again="none"):
    """Return the FLOPs of forward and backward: an int.

    A multiplication and an addition are two. Attention counts in full: the scores and the sum of
    values are two products of length by length for each head. A backward is twice its forward.
    Embedding, norms and other element-wise work count as 0; the head counts. With again="full",
    each block is computed once more, except its last product: torch stops as soon as backward has
    all that it needs. With "selective", only products 2, 4, 6, ... of a block are computed once
    more, except the last product.
    """
    # BEGIN SOLUTION
    tokens = sequences * length
    dense = [2 * tokens * n * m for n, m in shape.products]
    attention = 4 * tokens * length * shape.width
    block, head = sum(dense) + attention, 2 * tokens * shape.width * shape.vocab
    more = {"none": 0, "selective": sum(dense[1:-1:2]), "full": block - dense[-1]}
    return 3 * (shape.layers * block + head) + shape.layers * more[again]
    # END SOLUTION


# %% check="model_flops"
check(model_flops)

# %% [markdown]
# torch can count FLOPs too, on a model without values (the meta device):

# %%
from torch.utils.flop_counter import FlopCounterMode


def counted(shape, sequences, length):
    with torch.device("meta"):
        model, ids = Model(shape).bfloat16(), torch.zeros(sequences, length, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    return counter.get_total_flops()


small = replace(LLAMA_8B, layers=2)
beside(model_flops(small, 1, 2048), counted(small, 1, 2048), "FLOPs of two blocks and a head")
beside(pflop, model_flops(LLAMA_8B, 2, 8192) / 1e15, "PFLOP of a step of Llama 8B")

# %% [markdown]
# **Predict:** with sequences of 8,192 tokens, 6ND gives a sixth less than `model_flops`. At which
# length are both numbers equal? Which share of `model_flops` does 6ND give at 131,072 tokens?

# %%
for length in (2048, 8192, 32768, 131072):
    flops = model_flops(LLAMA_8B, 1, length)
    attention = 3 * 32 * 4 * length * length * 4096 / flops
    print(
        f"{length:7,} tokens: {flops / length / 1e9:6.2f} GFLOP a token,",
        f"6ND {6 * LLAMA_8B.parameters * length / flops:.3f} of it, attention {attention:.3f},",
        f"full ÷ none {model_flops(LLAMA_8B, 1, length, 'full') / flops:.3f}",
    )

# %% [markdown]
# **Notice:** at 2,048 tokens, 6ND is right by accident: 6ND wrongly includes the embedding,
# and leaves out the attention, and both errors are equally large. "full" takes less than 4/3 of the
# FLOPs of "none", because the head and the last product of each block are not computed again.

# %% [markdown]
# **Predict:** torchtitan publishes 5,762 tokens a second on each H100, for Llama 3.1 8B with
# sequences of 8,192 (`benchmarks/llama3_h100_202412_torchtitan.md`). Which share of the peak, 989
# TFLOP/s in bfloat16, do the model FLOPs of this training reach? This share is called **MFU**.

# %% guess="mfu"
mfu = 5762 * 57.91e9 / 989e12  # your prediction, a share of 1

# %%
beside(mfu, 5762 * model_flops(LLAMA_8B, 1, 8192) / 8192 / 989e12, "of the peak")
half = model_flops(LLAMA_8B, 1, 8192) - 3 * 32 * 2 * 8192 * 8192 * 4096
print(f"{5762 * half / 8192 / 989e12:.3f} if attention is halved")

# %% [markdown]
# **Notice:** the same run has two MFUs, because there are two ways to count attention. An
# MFU says little if nobody states the way of counting.

# %% [markdown]
# **In words:** somebody reports an MFU of 52 % at 32,768 tokens, for Llama 8B with everything
# computed again. Which questions do you ask before you believe this number? How low could the MFU be
# in this lab's way of counting?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A step without values
#
# `values=False` counts large operations and computes none of them, and `alike=1` runs one of many
# ranks that do the same work. So this computer runs a step of any size. The training works as in lab
# 13, but with torch's FSDP2: FSDP2 gathers parameters in bfloat16, and reduces gradients in float32.


# %%
def selected():
    """Keep attention, and every second product, beginning with the first."""
    seen = Counter()

    def policy(ctx, op, *args, **kwargs):
        keep = "attention" in str(op) or op is torch.ops.aten.bmm.default
        if op is torch.ops.aten.mm.default:
            seen[ctx.is_recompute] += 1
            keep = seen[ctx.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


# %%
def checkpointed(block, again):
    if again != "none":
        how = {"context_fn": selected} if again == "selective" else {}
        how |= {"use_reentrant": False, "preserve_rng_state": False}
        block.forward = partial(checkpoint, block.forward, **how)
    return block


# %%
from ddpkit import step
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def sharded(module, again="none", mesh=None):
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return fully_shard(checkpointed(module, again), mesh=mesh, mp_policy=mixed)


# %%
def train(shape, sequences, length, again, steps=2):
    model = sharded(Model(shape, partial(sharded, again=again)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.zeros(sequences, length, dtype=torch.long)
    for _ in range(steps):
        with step():
            logits = model(ids)
            loss = F.cross_entropy(logits.float().view(-1, shape.vocab), ids.view(-1))
            del logits
            loss.backward(), optimizer.step(), optimizer.zero_grad()


# %% [markdown]
# Under torchrun, a run without values is impossible, so `planned` returns None there.


# %%
def planned(ranks, link, *how, machine="H100 96GB", does=train, alike=1, **more):
    cluster = Cluster(ranks, machine=machine, link=link, values=False, alike=alike)
    return None if cluster.values else cluster.run(does, *how, **more)


def last_ms(run):
    return run.trace.step(-1).duration_ms if run else 0


# %% [markdown]
# ## Memory
#
# The ranks are eight H100 with 96 GB each, as in torchtitan's table. Bytes that a rank has in memory
# are **held**.
#
# **Predict:** Llama 8B trains on 2 × 8,192 tokens with `again="selective"`. For each parameter there
# are three float32 numbers: the parameter, and Adam's two numbers. Each rank holds an eighth of all
# these numbers. How many GB does a rank hold? Which tensor of the step is the largest?

# %% guess="state_gb"
state_gb = 12 * 8.03 / 8  # your prediction of the state, in GB

# %%
inside = "450 GB/s, 5 us"
llama = planned(8, inside, LLAMA_8B, 2, 8192, "selective")


# %%
def held(run):
    """Return the bytes of rank 0 at each moment."""
    return [level.total for level in run.trace.memory[0]]


if llama:
    state = 4 * LLAMA_8B.parameters / 8
    beside(state_gb, 3 * state / 1e9, "GB of state")
    print(f"{max(held(llama)) / 1e9:.2f} GB held at most: {max(held(llama)) / 2**30:.2f} GiB")
    print(f"float32 logits: {4 * 16384 * 128256 / 1e9:.1f} GB")

# %% [markdown]
# torch allocates memory when the host launches an operation. So the picture shows the host's time.
# In the first 75 ms, the host makes the model, block by block. Then the host launches two steps,
# ahead of the device.

# %%
from ddpkit.view import show_held

if llama:
    levels = [level for level in llama.trace.memory[0] if level.ns < 1e9]
    window = {0: (levels[0].ns, levels[-1].ns)}
    launching = replace(llama.trace, spans=(), bounds=window, memory={0: levels})
    show_held({"Llama 8B, selective": launching}, kind=None, limit=80 * 2**30)

# %% [markdown]
# **Notice:** the peak is not at the end of the forward. Three moments compete:
#
# - *The loss.* In backward, `log_softmax`'s output, its gradient and the logits' gradient are in
#   memory at once, each in float32: 12 bytes for each logit.
# %% [markdown]
# - *The last block's backward.* Two blocks are gathered, or are being gathered (2 + 2 bytes for each
#   parameter). The rank sends the float32 gradients of the previous block (4 bytes), and holds half
#   of this block's gradients (1 byte). The sum is 9 bytes.
# - *The first block's backward.* A rank no longer holds activations of other blocks, but holds the
#   gradients of all other blocks.

# %% [markdown]
# ## Your turn: fits


# %% exercise="fits"
def fits(shape, ranks, sequences, length, again="none"):
    """Return the most bytes that a rank holds in a step of FSDP2 with AdamW.

    A rank has its part of three float32 numbers for each parameter: the parameter and Adam's two
    numbers. The root's parameters stay gathered in bfloat16 during the step. For its backward, a
    block keeps 8 width + 4 hidden bfloat16 numbers for each token (2 hidden if it is not gated);
    with "full", only its input; with "selective", its input, attention's output, and the outputs of
    products 1, 3, 5, 7. At the loss, the logits are in memory three times, in float32. While a
    block's backward runs, the rank holds 9 bytes for each parameter of the block, the head's
    gradient in bfloat16 and, with checkpoints, all that "none" would keep for this block. During
    the first block's backward, the rank also holds its part of all gradients, in float32.
    """
    # BEGIN SOLUTION
    tokens, d, mine = sequences * length, shape.width, shape.parameters / ranks
    inside = 8 * d + (4 if shape.gated else 2) * shape.hidden
    selected = 2 * d + sum(m for _, m in shape.products[::2])
    kept = {"none": inside, "selective": selected, "full": d}[again]
    held = shape.layers * kept * 2 * tokens
    working = 2 * shape.vocab * d + 9 * shape.block
    if again != "none":
        working += inside * 2 * tokens
    loss = held + 12 * tokens * shape.vocab
    return 12 * mine + 2 * shape.root + max(loss, held + working, 4 * mine + working)
    # END SOLUTION


# %% check="fits"
check(fits)

# %%
if llama:
    beside(fits(LLAMA_8B, 8, 2, 8192, "selective") / 1e9, max(held(llama)) / 1e9, "GB")

for again in ("none", "selective", "full"):
    row = [fits(LLAMA_8B, 8, n, 8192, again) / 2**30 for n in (1, 2, 3, 4)]
    print(f"{again:9}", "".join(f"{each:7.1f}" for each in row), "GiB for 1 to 4 sequences")

# %% [markdown]
# **Predict:** "none" with two sequences does not fit into the 80 GiB of an H100. In the first step Adam
# has no state yet, so there are 4.02 GB of parameters, 2.10 GB of the root, and two gathered blocks of
# 0.44 GB. Each block keeps 2.95 GB. After how many blocks does the forward stop?

# %% guess="stops_in"
stops_in = (85.9 - 4.02 - 2.10 - 2 * 0.44) / 2.95  # your prediction: blocks

# %%
full = planned(8, inside, LLAMA_8B, 2, 8192, "none", machine="H100", expect_error=True)
spans = full.trace.of(0) if full else ()
done = sum(each.is_compute and each.name == "Linear" for each in spans) / 7
beside(stops_in, done, "blocks of seven products")

# %% [markdown]
# **Notice:** sharding divides only the state. For one sequence and "full", your `fits` gives
# these numbers:

# %%
for ranks in (1, 2, 4, 8, 16):
    print(f"{ranks:2} ranks: {fits(LLAMA_8B, ranks, 1, 8192, 'full') / 2**30:6.1f} GiB")

# %% [markdown]
# **Predict:** how could the loss take less memory?
#
# <details><summary>An answer</summary>
#
# Compute the head and the loss for only 1,024 tokens at a time, so that a rank holds only a part of
# the logits. Slices (lab 12) can divide the logits too: then each rank has a part of the vocabulary.
#
# </details>

# %% [markdown]
# This cell is optional. It uses your function `kept` from lab 18, and prints the bytes that a block
# keeps, as a multiple of the bytes of its input.


# %%
def shares(shape):
    block, x = Block(shape), torch.ones(1, 64, shape.width, requires_grad=True)
    return carry("kept")(block, x) / (4 * x.numel())


print(f"{shares(Shape(1, 256, 8, 2, 896, 0)):.1f} times the input")

# %% [markdown]
# ## Three roofs
#
# An operation waits for arithmetic, for memory, or for its launch. The first two limits form the
# **roofline** of Williams, Waterman and Patterson (2009). The third limit comes from the host, which
# launches one operation after another, ahead of the device.


# %% tags=["answers"]
@dataclass(frozen=True)
class Machine:
    """Rates that programs really reach, not the rates of a data sheet."""

    flops: float  # FLOP/s
    bandwidth: float  # bytes/s
    launch: float  # seconds


# %% [markdown]
# ## Your turn: roof


# %% exercise="roof"
def roof(operations, machine):
    """Return a list with the limit of each operation, and the end of the last operation in seconds.

    operations is a list of (flops, nbytes). The host launches one operation after another and never
    waits: it launches operation k, counted from 1, at k * machine.launch. The device runs one
    operation at a time, each after its launch and after the previous operation. An operation takes
    the longer of flops / machine.flops and nbytes / machine.bandwidth. Its limit is "launches" if
    the device has waited for its launch, and otherwise "arithmetic" or "memory", whichever takes
    longer.
    """
    # BEGIN SOLUTION
    limits, free = [], 0.0
    for number, (flops, nbytes) in enumerate(operations, 1):
        launched = number * machine.launch
        arithmetic, memory = flops / machine.flops, nbytes / machine.bandwidth
        work = "arithmetic" if arithmetic >= memory else "memory"
        limits.append("launches" if launched > free else work)
        free = max(launched, free) + max(arithmetic, memory)
    return limits, free
    # END SOLUTION


# %% check="roof"
check(roof)

# %% [markdown]
# The next cell lists the operations of a forward and a backward, on paper. In each block there are
# two norms, two sums, and the MLP's function, which read and write their tensors in bfloat16;
# attention reads four tensors.


# %%
def operations(shape, tokens, length):
    """Return the operations of a step as (flops, nbytes)."""
    d, h = shape.width, shape.hidden
    products = [(2 * tokens * n * m, 2 * (tokens * (n + m) + n * m)) for n, m in shape.products]
    attention = [(4 * tokens * length * d, 8 * tokens * d)]
    passes = [(0, 2 * tokens * each) for each in (2 * d, 3 * d, 3 * d, 2 * d, 3 * h, 2 * h)]
    block = products + attention + passes
    head = (2 * tokens * d * shape.vocab, 2 * (tokens * (d + shape.vocab) + d * shape.vocab))
    loss = [(0, 4 * tokens * shape.vocab * each) for each in (1.5, 2, 2)]
    return shape.layers * block + [head] + loss + 2 * ([head] + shape.layers * block)


# %%
MACHINES = {
    "A100": Machine(218.4e12, 1.631e12, 5e-6),
    "H100": Machine(593.4e12, 2.68e12, 4e-6),
    "V100": Machine(10.99e12, 0.72e12, 5e-6),
    "H100, Python's launches": Machine(593.4e12, 2.68e12, 50e-6),
}
MPT_125M = Shape(12, 768, 12, 12, 3072, 50368, gated=False, tied=True)


# %% [markdown]
# **Predict:** the H100 has nearly three times the A100's arithmetic, and 1.6 times its bandwidth. On
# the H100, do the operations that wait for memory take a larger share of the time? Which of the
# three limits holds for a model of 125 million parameters with 128 tokens?


# %%
def shares_of(queue, machine):
    limits, end = roof(queue, machine)
    work = Counter()
    for name, (flops, nbytes) in zip(limits, queue):
        work[name] += max(flops / machine.flops, nbytes / machine.bandwidth)
    waits = end - sum(work.values())
    parts = {name: work[name] / end for name in ("arithmetic", "memory")}
    return end * 1e3, {**parts, "launches": (work["launches"] + waits) / end}


for shape, tokens, length in ((LLAMA_8B, 16384, 8192), (MPT_125M, 128, 128)):
    queue = operations(shape, tokens, length)
    print(f"{shape.parameters:,} parameters, {tokens:,} tokens: {len(queue):,} operations")
    for name, machine in MACHINES.items():
        ms, parts = shares_of(queue, machine)
        said = ", ".join(f"{part} {share:.0%}" for part, share in parts.items())
        print(f"  {name:24} {ms:10,.2f} ms: {said}")

# %%
from ddpkit.view import show_roof

show_roof(operations(LLAMA_8B, 16384, 8192), MACHINES["H100"])

# %% [markdown]
# **Notice:** with faster arithmetic, memory takes a larger share of the time. By their peaks
# of 125 and 989 TFLOP/s, the V100 should be 8 times slower than the H100. But the V100 is 50 times
# slower, because it computes bfloat16 as float32. Launches limit small models on fast machines. CUDA
# alone needs 4 us for a launch; with Python, a launch takes more than ten times as long.

# %% [markdown]
# ## How many tokens hide the network?
#
# A **stretch** is the computation behind which one message can hide. The longer the sequence of a
# rank, the longer the stretch; the bytes of parameters and gradients stay as they are. The **limit**
# is the number of tokens at which the message is just hidden.
#
# **Predict:** two models, of 8 and of 70 billion parameters, train over the same network. Which
# model needs more tokens on each rank?

# %% [markdown]
# **Predict:** in backward, a block of $P$ parameters computes 4 FLOPs for each parameter and token,
# at 593 TFLOP/s. For each parameter, FSDP gathers 2 bytes and reduces 4 bytes. With eight ranks, 7/8
# of these bytes travel, at 50 GB/s. With how many tokens do computation and messages take the same
# time, without latency?

# %% guess="limit"
limit = 7 / 8 * (2 + 4) / 50e9 * 593.4e12 / 4  # your prediction: tokens

# %% [markdown]
# ## Your turn: hidden_from


# %% exercise="hidden_from"
def hidden_from(way, block, width, n, flops, bandwidth, latency):
    """Return the least number of tokens of a rank that hides the communication; math.inf if none.

    A stretch has `block` parameters: 2 * block FLOPs a token in forward, 4 * block in backward.
    Each rank reaches `flops` FLOP/s. The n ranks form a ring: an all-gather or a reduce-scatter of
    B bytes takes n - 1 hops of latency + B / n / bandwidth, and an all-reduce takes twice as long.
    One communication runs at a time. "shards": a block's forward hides the gather of the next
    block's parameters, in bfloat16; a block's backward hides such a gather too, and also the
    reduce-scatter of the previous block's gradients, in float32. "copies": a block's backward hides
    the all-reduce of the previous block's gradients, in float32. "slices": a rank has 1 / n of a
    block. Its tokens are two halves that take turns: the forward of one half hides the all-reduce
    of the other half, with width bfloat16 numbers for each token.
    """

    # BEGIN SOLUTION
    def trip(nbytes):
        return (n - 1) * (latency + nbytes / n / bandwidth)

    per_token = 2 * (n - 1) * width / n / bandwidth  # an all-reduce of one half
    stretches = {  # seconds: messages, messages per token, arithmetic per token
        "shards": [
            (trip(2 * block), 0, 2 * block / flops),
            (trip(2 * block) + trip(4 * block), 0, 4 * block / flops),
        ],
        "copies": [(2 * trip(4 * block), 0, 4 * block / flops)],
        "slices": [(2 * trip(0), per_token, block / n / flops)],
    }[way]
    tokens = [once / (work - more) if work > more else math.inf for once, more, work in stretches]
    return max(each if each == math.inf else math.ceil(each) for each in tokens)
    # END SOLUTION


# %% check="hidden_from"
check(hidden_from)

# %%
beside(limit, hidden_from("shards", LLAMA_8B.block, 4096, 8, 593.4e12, 50e9, 5e-6), "tokens")
for n, rate in ((8, 450e9), (8, 50e9), (64, 50e9), (512, 50e9)):
    rates = 593.4e12, rate, 5e-6
    row = [hidden_from(way, LLAMA_8B.block, 4096, n, *rates) for way in ("shards", "copies")]
    row.append(hidden_from("shards", MPT_70B.block, 8192, n, *rates))
    print(f"{n:3} ranks, {rate / 1e9:3.0f} GB/s: shards {row[0]:6,}, copies {row[1]:6,};", end=" ")
    print(f"MPT 70B, shards {row[2]:6,}")

# %% [markdown]
# **Notice:** the model's size hardly matters, because the bytes and the FLOPs both grow with
# the number of parameters. The scaling book ([chapter
# 5](https://jax-ml.github.io/scaling-book/training/)) gives 2,550 tokens a chip for TPU v5p, from
# the forward alone. A backward with float32 gradients needs 1.5 times as many tokens.

# %% [markdown]
# Now run eight blocks of Llama 8B with all operations, including attention, norms and element-wise
# work.


# %%
def blocks(shape, counts):
    model = sharded(nn.Sequential(*(sharded(Block(shape)) for _ in range(8))))
    for tokens in counts:
        for _ in range(2):
            x = torch.empty(1, tokens, shape.width, dtype=torch.bfloat16, requires_grad=True)
            with step():
                model(x).sum().backward()


# %%
TOKENS = [2048, 4096, 8192, 12288, 16384, 20480]


def exposed(link):
    """Return the ms of the step and the exposed share, for each number of tokens."""
    run = planned(8, link, LLAMA_8B, TOKENS, machine="H100", does=blocks)
    steps = [run.trace.step(2 * k + 1) for k in range(len(TOKENS))] if run else []
    parts = [each.breakdown()[0] for each in steps]
    return [(each.step_ns / 1e6, each.exposed_ns / each.step_ns) for each in parts]


slow = exposed("50 GB/s, 5 us")
for tokens, (ms, share) in zip(TOKENS, slow):
    print(f"{tokens:6,} tokens at 50 GB/s: {ms:6.1f} ms, {share:.0%} exposed")

# %%
fast = exposed("450 GB/s, 5 us")
for tokens, (ms, share) in zip(TOKENS, fast):
    print(f"{tokens:6,} tokens at 450 GB/s: {ms:6.1f} ms, {share:.0%} exposed")

# %%
from ddpkit.view import show_limits

at = {
    rate: hidden_from("shards", LLAMA_8B.block, 4096, 8, 593.4e12, rate * 1e9, 5e-6)
    for rate in (50, 450)
}
if slow:
    lines = {
        f"{rate} GB/s": (TOKENS, [share for _, share in found])
        for rate, found in ((50, slow), (450, fast))
    }
    show_limits(lines, {f"{rate} GB/s": tokens for rate, tokens in at.items()})

# %% [markdown]
# **Notice:** above the limit, the first gather and the last reduce-scatter remain exposed,
# because no rank computes meanwhile. The curve bends at fewer tokens than the formula says, because
# attention, norms and element-wise work hide messages too.
#
# **Predict:** 2,048 tokens take nearly as long as 4,096. Why?

# %% [markdown]
# **Predict:** MPT 70B has eight slices on different hosts, with links of 50 GB/s. Do more tokens
# help to hide the messages?

# %%
for rate in (450e9, 50e9):
    tokens = hidden_from("slices", MPT_70B.block / 2, 8192, 8, 593.4e12, rate, 3e-6)
    print(f"{rate / 1e9:.0f} GB/s: {tokens:,} tokens")

# %% [markdown]
# **Notice:** twice as many tokens take twice the arithmetic, and send twice as many bytes, so at
# 50 GB/s no number of tokens hides the messages. Therefore slices stay inside a host.

# %% [markdown]
# ## Comparison with published measurements
#
# In torchtitan's row, Llama 3.1 8B trains on 8 × H100 of 96 GB, with selective checkpointing. Each
# GPU trains 5,762 tokens a second, and 82.4 GiB are *reserved*. ddpkit has fitted the machine `"H100
# 96GB"` to different rows, MosaicML's rows of MPT on H100. On this machine, products reach 0.64 of
# the peak, and attention reaches 0.35.

# %% [markdown]
# **Predict:** a step has 0.82 PFLOP of products, 0.25 PFLOP of attention, and 0.8 s of work that
# waits for memory. How many tokens a second does a GPU train?

# %% guess="tokens_s"
tokens_s = 16384 / (0.82 / 0.633 + 0.25 / 0.346 + 0.8)  # your prediction: tokens a second

# %%
if llama:
    ours = 16384 / last_ms(llama) * 1e3
    beside(tokens_s, ours, "tokens a second, without values")
    beside(5762, ours, "tokens a second, published and ours")
    print(f"{max(held(llama)) / 2**30:.1f} GiB allocated; published 82.4 GiB reserved")

# %% [markdown]
# In MosaicML's row (llm-foundry, `scripts/train/benchmarking/README.md`), MPT 70B trains on 512
# H100, with 8 × 2,048 tokens on each GPU and full checkpointing. Each GPU trains 1,007 tokens a
# second; with 128 GPUs, each trains 1,058. The eight GPUs of a host share 3,200 Gbit/s. A ring in
# the order of the ranks crosses a host's link once, so it has the 400 GB/s of the whole host.

# %%
hosts = "400 GB/s, 5 us"
mpt = planned(512, hosts, MPT_70B, 8, 2048, "full", 1, machine="H100 SXM")
if mpt:
    beside(1007, 16384 / last_ms(mpt) * 1e3, "tokens a second, published and ours")

# %% [markdown]
# **In words:** answer each question in one sentence. Why is the published memory larger? Why is a
# published step longer than ours, or shorter? In the measurement, 512 ranks are 5 % slower than 128
# ranks. Why does a prediction not show this difference?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A network that nobody has published
#
# Now a whole *host* has 400 Gbit/s in place of 3,200 Gbit/s, so the ring has 50 GB/s in place of 400
# GB/s. Take MPT 70B on 512 ranks with 16,384 tokens each, and Llama 8B on 64 ranks with 8,192 tokens
# each.

# %% [markdown]
# **Predict, for each:** does a step take as long as before, 1.1 times as long, or 1.5 times as long?
# How many ms do the messages take during the backward of one MPT block?

# %% guess="messages_ms"
messages_ms = 2 * 511 * 0.005 + 6 * 805.3e6 * 511 / 512 / 50e9 * 1e3  # your prediction, in ms

# %%
slow_hosts = "50 GB/s, 5 us"
block_ms = 3 * 2 * MPT_70B.block * 16384 / 593.4e12 * 1e3
moved = 6 * MPT_70B.block * 511 / 512 / 50e9
beside(messages_ms, (moved + 2 * 511 * 5e-6) * 1e3, "ms of messages behind a block's backward")
print(f"{block_ms:.0f} ms of arithmetic in this backward, with everything computed again")

# %%
MPT_ROW, LLAMA_ROW = (512, MPT_70B, 8, 2048, "full"), (64, LLAMA_8B, 1, 8192, "selective")


def step_ms(row, link):
    ranks, *how = row
    return last_ms(planned(ranks, link, *how, 1, machine="H100 SXM"))


pairs = {
    "MPT 70B": (last_ms(mpt), step_ms(MPT_ROW, slow_hosts)),
    "Llama 8B": (step_ms(LLAMA_ROW, hosts), step_ms(LLAMA_ROW, slow_hosts)),
}
for name, ms in pairs.items():
    if all(ms):
        print(f"{name}: {ms[0]:,.0f} ms and {ms[1]:,.0f} ms, {ms[1] / ms[0] - 1:.1%} more")

# %% [markdown]
# **Notice:** with an eighth of the bandwidth, a step of MPT 70B takes hardly longer, and a
# step of Llama 8B with one sequence takes a tenth longer. The number of tokens on a rank decides,
# not the number of parameters. Computing blocks again also hides messages (lab 18).

# %% [markdown]
# **In words:** your 64 GPUs have 400 Gbit/s a host, and in a step of Llama 8B with one sequence on
# each GPU, the GPUs wait for the network. Name three ways to avoid this wait without a new network,
# and the price of each way.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Somebody sends a profile
#
# **Predict:** all ranks wait for the same collective. Is the network the cause?
#
# A profile has spans. A kernel's span has its FLOPs, its bytes and the moment of its launch. A
# collective is posted at `start_ns`; at `ready_ns` all ranks have posted it, and bytes begin to
# move.

# %%
from ddpkit import show
from ddpkit.trace import Span, Trace
from ddpkit.trace.intervals import subtract, total

print(subtract([(0, 10)], [(2, 4), (7, 12)]), total([(0, 2), (4, 7)]))


# %%
def kernel(rank, start, end, launched=0):
    args = {"flops": 10**9, "bytes": 10**6, "launched_ns": launched}
    return Span(rank, "compute", "kernel", "span", start, end, args=args)


def meets(rank, start, ready, end):
    more = {"ready_ns": ready, "group": "world", "seq": 0, "bytes": 1000}
    return Span(rank, "comm", "all_reduce", "comm", start, end, **more)


# %%
spans = [kernel(0, 0, 90_000), meets(0, 90_000, 200_000, 215_000)]
spans += [kernel(1, 0, 120_000), kernel(1, 125_000, 200_000, launched=125_000)]
spans += [meets(1, 200_000, 200_000, 215_000)]
late = Trace(tuple(spans), 2)
show(late)

# %% [markdown]
# **Notice:** rank 0 waits for 110 us in the all-reduce, and then bytes move for 15 us. Rank
# 1's device was idle for 5 us, because the host had launched nothing. The rank that waits is not the
# slow rank.

# %% [markdown]
# ## Your turn: read_profile


# %% exercise="read_profile"
def read_profile(trace, ridge):
    """Return the limit of a step, and the most nanoseconds that mending the limit can gain.

    Spans of the device have args["flops"], args["bytes"] and args["launched_ns"]. Each rank has
    five times. "memory": for each kernel with less than `ridge` FLOPs a byte, the part of its time
    that its arithmetic does not need. "launches": idle time that ends when a kernel starts that was
    launched at this moment. "network": bytes move (from ready_ns to end_ns), and nothing computes.
    "straggler": nothing computes, nothing moves, and a collective waits for a rank (from start_ns
    to ready_ns). "bubble": the same, but a message waits. The gain of a name is its largest time on
    any rank; the limit is the name with the largest gain.
    """
    # BEGIN SOLUTION
    most = Counter()
    for rank in trace.ranks:
        work = [s for s in trace.of(rank) if s.is_compute]
        ops = [s for s in trace.of(rank) if s.is_comm]
        busy, asked = [(s.start_ns, s.end_ns) for s in work], [(o.start_ns, o.end_ns) for o in ops]
        moving = subtract([(o.ready_ns, o.end_ns) for o in ops], busy)
        idle = subtract([trace.window_of(rank)], busy + asked)
        late = {s.start_ns for s in work if s.start_ns == s.args["launched_ns"]}
        gains = {}
        for name, collective in (("straggler", True), ("bubble", False)):
            posted = [(o.start_ns, o.ready_ns) for o in ops if o.is_collective == collective]
            gains[name] = total(subtract(posted, busy + moving))
        shares = [(s, max(0, 1 - s.args["flops"] / s.args["bytes"] / ridge)) for s in work]
        gains["memory"] = round(sum(s.duration_ns * share for s, share in shares))
        gains["launches"] = sum(end - start for start, end in idle if end in late)
        most |= Counter(gains, network=total(moving))
    return most.most_common(1)[0]
    # END SOLUTION


# %% check="read_profile"
check(read_profile)

# %%
print(read_profile(late, ridge=300))

# %% [markdown]
# ## A plan
#
# A **plan** says how many replicas, stages (lab 11) and slices (lab 12) there are, what is computed again,
# and how many sequences a micro-batch has. Replicas divide parameters, gradients and state among
# themselves, as in lab 14.

# %% tags=["answers"]
AGAIN = "none", "selective", "full"


@dataclass(frozen=True)
class Plan:
    replicas: int
    stages: int
    slices: int
    again: str
    micro: int  # sequences in a micro-batch

    @property
    def gpus(self):
        return self.replicas * self.stages * self.slices


# %% [markdown]
# The next functions use your `fits` and `model_flops` for the bytes and the seconds of a plan. They
# leave out messages between stages, element-wise work and the optimizer. So the seconds can compare
# plans, but cannot predict the time of a real step.


# %% tags=["answers"]
def plan_bytes(plan, shape, length, batch):
    """Return an upper bound of the bytes of a rank in the first stage: it includes the head's
    bytes.
    """
    stage = replace(shape, layers=shape.layers // plan.stages)
    held = min(plan.stages, batch // (plan.replicas * plan.micro))
    return fits(stage, plan.replicas, held * plan.micro, length, plan.again) / plan.slices


# %% tags=["answers"]
def plan_seconds(plan, shape, length, batch, machine, inside, between):
    """Return a step's seconds; inside (a GPU's link) and between (a host's) are (s, bytes/s)."""
    layers = shape.layers // plan.stages
    work = model_flops(shape, plan.micro, length, plan.again) / machine.flops
    work /= plan.stages * plan.slices
    sums = layers * (6 if plan.again == "full" else 4)  # all-reduces of the slices
    nbytes = 2 * plan.micro * length * shape.width
    added = sums * 2 * (plan.slices - 1) * (inside[0] + nbytes / plan.slices / inside[1])
    travels = 8 / 3 * shape.parameters / shape.layers  # mean of 2 gathers, 1 scatter
    moved = 3 * layers * (plan.replicas - 1) * (between[0] + travels / plan.replicas / between[1])
    turns = batch // (plan.replicas * plan.micro) + plan.stages - 1
    return turns * max(work + added, moved)


# %% [markdown]
# ## Your turn: choose


# %% exercise="choose"
def choose(shape, batch, gpus, host, memory, seconds, size):
    """Return the fastest plan and the cheapest plan. Raise ValueError if no plan fits.

    gpus lists the numbers of GPUs that you may rent; a plan uses exactly one of these numbers.
    Stages divide the layers; slices divide the key heads and the `host` GPUs of a host; replicas *
    micro divides the batch, in sequences; again is one of AGAIN. A plan fits if size(plan) is at
    most memory. seconds(plan) is the time of a step: call it only if the plan fits. The cheapest
    plan has the least GPUs * seconds; of equally cheap plans, it is the fastest.
    """

    # BEGIN SOLUTION
    def divisors(n):
        return [k for k in range(1, n + 1) if n % k == 0]

    found = []
    counts = gpus, divisors(shape.layers), divisors(host), AGAIN, divisors(batch)
    for n, stages, slices, again, micro in itertools.product(*counts):
        plan = Plan(n // (stages * slices), stages, slices, again, micro)
        divides = plan.gpus == n and shape.kv_heads % slices == 0
        if divides and batch % (plan.replicas * micro) == 0 and size(plan) <= memory:
            found.append((seconds(plan), n, plan))
    if not found:
        raise ValueError(f"no plan fits into {memory} bytes")
    fastest = min(found, key=lambda each: each[0])
    cheapest = min(found, key=lambda each: (each[0] * each[1], each[0]))
    return fastest[2], cheapest[2]
    # END SOLUTION


# %% check="choose"
check(choose)

# %% [markdown]
# Choose plans for Llama 70B with 512 sequences of 8,192 tokens, on 64 to 512 H100. **Predict:** each
# host has a network of 100 Gbit/s. Does the fastest plan use the most GPUs?


# %%
def plans(between):
    same = {"shape": LLAMA_70B, "length": 8192, "batch": 512}
    rates = {"machine": MACHINES["H100"], "inside": (3e-6, 450e9), "between": (5e-6, between)}
    take, size = partial(plan_seconds, **same, **rates), partial(plan_bytes, **same)
    memory = 0.95 * 80 * 2**30
    return *choose(LLAMA_70B, 512, [64, 128, 256, 512], 8, memory, take, size), take


for gbit in (3200, 400, 100):
    *chosen, take = plans(gbit / 8 * 1e9)
    for name, plan in zip(("fastest", "cheapest"), chosen):
        hours = plan.gpus * take(plan) / 3600
        print(
            f"{gbit:4} Gbit/s, {name:8} {take(plan):6.2f} s, {hours:.2f} GPU hours a step: {plan}"
        )

# %% [markdown]
# **Notice:** on the slowest network, 128 GPUs are faster than 512 GPUs. At 400 Gbit/s, the
# fastest plan takes a sixth of the cheapest plan's time, and a third more GPU hours. The fastest
# plan at 400 Gbit/s has larger micro-batches than the plan at 3,200 Gbit/s, and computes every block
# again: more computation hides more messages.

# %% [markdown]
# How accurate is `plan_seconds`? Take Llama 70B on 256 ranks with shards alone, two sequences on
# each rank, everything computed again, and 400 Gbit/s for each host. **Predict:** does
# `plan_seconds` give a longer or a shorter time than the run? What is missing from the formula?

# %%
plan = Plan(256, 1, 1, "full", 2)
more = MACHINES["H100"], (3e-6, 450e9), (5e-6, 50e9)
on_paper = plan_seconds(plan, LLAMA_70B, 8192, 512, *more)
real = planned(256, slow_hosts, LLAMA_70B, 2, 8192, "full", 1, machine="H100")
beside(on_paper, last_ms(real) / 1e3, "s")

# %% [markdown]
# ## The best three plans, run
#
# On paper, three plans with 8, 4 and 2 slices take nearly the same time at 400 Gbit/s. Run four of
# the 80 blocks by each plan, without the embedding and the head. Slices enter and leave a block as
# in lab 12, but in a group of the ranks.

# %%
import torch.distributed as dist


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


# %%
class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


# %%
class Slice(Block):
    def __init__(self, shape, group):
        super().__init__(shape)
        self.group, n = group, group.size()
        for k, (rows, columns) in enumerate(shape.products):
            by_rows = n if k in (3, 6) else 1
            self.products[k] = nn.Linear(rows // by_rows, columns * by_rows // n, bias=False)

    def forward(self, x):
        *qkv, out, up, gate, down = self.products
        y = Enter.apply(self.before(x), self.group)
        x = x + Leave.apply(out(attended(self.shape, y, qkv)), self.group)
        y = Enter.apply(self.after(x), self.group)
        return x + Leave.apply(down(F.silu(up(y)) * gate(y)), self.group)


# %%
from torch.distributed.device_mesh import init_device_mesh


def divided(plan, shape):
    """Return the blocks of a plan without stages: FSDP2 on the replicas, and slices."""
    names = {"mesh_dim_names": ("replicas", "slices")}
    mesh = init_device_mesh("cpu", (plan.replicas, plan.slices), **names)
    shards = partial(sharded, mesh=mesh["replicas"])
    made = [Slice(shape, mesh["slices"].get_group()) for _ in range(shape.layers)]
    return shards(nn.Sequential(*(shards(block, plan.again) for block in made)))


# %%
def by_plans(plans, shape, length):
    for plan in plans:
        model, sizes = divided(plan, shape), (plan.micro, length, shape.width)
        for _ in range(2):
            x = torch.empty(sizes, dtype=torch.bfloat16, requires_grad=True)
            with step():
                model(x).sum().backward()
        del model


# %% [markdown]
# The formula divides the arithmetic of a block among the slices. **Predict:** which work of a block
# is not divided, and which of the three plans has most of this work? Which plan is the fastest in the
# run?

# %%
BEST = [Plan(64, 1, 8, "full", 8), Plan(128, 1, 4, "full", 4), Plan(256, 1, 2, "full", 2)]
FOUR = replace(LLAMA_70B, layers=4, vocab=0)
each_host = {"hosts of": 8, "inside": "450 GB/s, 3 us", "between": "400 Gbit/s, 5 us"}
sliced = planned(512, each_host, BEST, FOUR, 8192, machine="H100", does=by_plans, alike=8)
for number, plan in enumerate(BEST if sliced else []):
    found = sliced.trace.step(2 * number + 1).breakdown()[0]
    print(
        f"{plan.slices} slices: {plan_seconds(plan, FOUR, 8192, 512, *more) * 1e3:7,.1f} ms on paper,",
        f"{found.step_ns / 1e6:7,.1f} ms in the run, {found.exposed_ns / 1e6:5.1f} ms of it exposed",
    )

# %% [markdown]
# **Notice:** norms, sums and the copies of the all-reduces work on all tokens on each slice.
# So with eight slices, each rank does this work for eight sequences, and the plan that was the
# fastest on paper is the slowest in the run. *Sequence parallelism* divides
# these operations too: each slice has a part of the tokens outside the products.

# %% [markdown]
# ## A trillion parameters
#
# Megatron-LM's table of 2021 ([2104.04473](https://arxiv.org/abs/2104.04473), table 1) has 1,008 billion
# parameters on 3,072 A100: 8 slices, 64 stages, 6 replicas, 3,072 sequences of 2,048 tokens, and 163
# TFLOP/s a GPU by the paper's formula, which counts recomputation. Megatron's replicas are copies, so
# nothing is gathered: take the plan of one replica with its 512 sequences.
#
# **Predict** the seconds of a step, with your own functions.

# %%
GPT_1T = Shape(128, 25600, 160, 160, 102400, 51200, gated=False, tied=True)
megatron = Plan(1, 64, 8, "full", 1)
reached = Machine(0.74 * 312e12, 1.1e12, 5e-6)
mine = plan_seconds(megatron, GPT_1T, 2048, 512, reached, (3e-6, 230e9), (5e-6, 160e9))
tokens = 3072 * 2048
paper = 96 * tokens * 128 * 25600**2 * (1 + 2048 / 6 / 25600 + 51200 / 16 / 128 / 25600)
beside(mine, paper / 3072 / 163e12, "s of a step, yours and published")

# %% [markdown]
# **Notice:** your time is a fifth shorter than the published time. The formula of this lab
# leaves out element-wise work and messages between stages. Megatron's stages are interleaved (lab
# 11), so Megatron's bubble is smaller: an error in the opposite direction. A number that is right on
# paper may be right by accident.

# %% [markdown]
# ## The way out
#
# This program counts the FLOPs of a step in plain torch, and measures the TFLOP/s of your computer.
#
# ```python
# import time, torch
# from torch import nn
# from torch.utils.flop_counter import FlopCounterMode
#
# width, layers, heads, vocab, length = 512, 4, 8, 8000, 256
# layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
# body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
# net = nn.ModuleList([nn.Embedding(vocab, width), body, nn.Linear(width, vocab)])
# ids = torch.zeros(2, length, dtype=torch.long)
#
# def step(net, ids):
#     logits = net[2](net[1](net[0](ids)))
#     nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
#
# with FlopCounterMode(display=False) as counter:
#     step(net, ids)
# start = time.perf_counter()
# step(net, ids)
# seconds, flops = time.perf_counter() - start, counter.get_total_flops()
# print(f"{flops / 1e9:.1f} GFLOP, {flops / seconds / 1e12:.3f} TFLOP/s")
# ```

# %% [markdown]
# ## You have built
#
# - the FLOPs and the memory of a step of any transformer, checked by torch's counter and by runs;
# - a roofline with a third limit, and the number of tokens that hides the messages of a network;
# - a reader of profiles, and a search for the fastest and the cheapest plan.
#
# **Next:** your own training. Count before you rent.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 20_real_sizes.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
