# ---
# jupyter:
#   ddpkit:
#     builds: "checkpointing of your own, a plan within a memory limit, and low precision between ranks"
#     minutes: 90
#     needs: labs 02, 04, 11 and 13
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
# # 18 · Memory
#
# **You will build** checkpointing of your own, a plan that fits a training into a limit of memory by
# computing some blocks again, and three ways to send fewer bits: sums in bfloat16, a loss scale for
# all ranks, and gathers in fp8.
#
# **You need** labs 02, 04, 11 and 13. About 90 minutes. Sums, scales and fp8 may wait for another
# day.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check, step

# %%
from torch import nn

# %% [markdown]
# ## A block keeps more than it is given
#
# Lab 13 has divided parameters, gradients and the optimizer's state among the ranks. Now look at the
# rest of the memory: the **activations**. Autograd keeps tensors of the forward, because the backward
# needs them.


# %%
class Block(nn.Module):
    def __init__(self, number, width=128, hidden=512):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        hidden = nn.functional.dropout(nn.functional.gelu(self.wide(x)), 0.1)
        return x + self.narrow(hidden)


# %%
def tokens(rows=512):
    """Return the inputs of a rank; ranks have different inputs."""
    torch.manual_seed(100 + (dist.get_rank() if dist.is_initialized() else 0))
    return torch.randn(rows, 128, requires_grad=True)


# %% [markdown]
# `saved_tensors_hooks` calls a function for each tensor that autograd saves. A **storage** is the
# memory behind a tensor; a view has the storage of another tensor.

# %%
from torch.autograd.graph import saved_tensors_hooks


def say(tensor):
    print(f"{list(tensor.shape)!s:12} of a storage of {tensor.untyped_storage().nbytes():9,} B")
    return tensor


with saved_tensors_hooks(say, lambda tensor: tensor):
    Block(0)(tokens())

# %% [markdown]
# Two of the tensors are transposed views of the weights, and the weights are in memory anyway.
#
# **Predict:** the input has 512 · 128 numbers of 4 B. Inside the block, a row has four times as many
# numbers. Add up the tensors above that are not views of parameters: how many MB does the block
# keep?

# %% guess="kept_mb"
kept_mb = 13 * 512 * 128 * 4 / 1e6  # your prediction, in MB

# %% [markdown]
# ## Your turn: bytes kept


# %% exercise="kept"
def kept(module, *inputs):
    """Return the bytes that autograd keeps for the backward of `module(*inputs)`: an int.

    Each storage counts once, with all bytes, for any number of saved tensors and views. Parameters
    of the module do not count, nor do saved views of parameters. No gradient is computed.
    """
    # BEGIN SOLUTION
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    found = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        module(*inputs)
    return sum(size for place, size in found.items() if place not in own)
    # END SOLUTION


# %% check="kept"
check(kept)

# %%
beside(kept_mb, kept(Block(0), tokens()) / 1e6, "MB kept by one block")

# %% [markdown]
# **Notice:** the block keeps x, the output of `wide`, dropout's factors, and the input of
# `narrow`: 1 + 4 + 4 + 4 = 13 times the input. On a GPU, each of dropout's factors has one byte, so
# the block keeps 10 times the input.
#
# ## Twelve blocks
#
# The machine of this lab has a bandwidth of 1000 TB/s. Element-wise work takes only some nanoseconds:
# nearly all time below belongs to matrix products, but the pictures show every level of memory.


# %%
def by_blocks(blocks, forward, rows=512):
    """Compute forward, loss and backward of a step."""
    y = tokens(rows)
    for block in blocks:
        y = forward(block, y)
    y.square().mean().backward()


def plain(block, x):
    return block(x)


def stack(forward, count=12):
    blocks = [Block(number) for number in range(count)]
    with step():
        by_blocks(blocks, forward)
    return [p.grad.double().norm().item() for block in blocks for p in block.parameters()]


# %%
def held(run, rank=0):
    """Return the most MB of activations in a step; 0 under torchrun, without a modelled machine."""
    trace = run.trace.step(0) if run.trace.steps else run.trace
    levels = trace.memory.get(rank, ())
    return max((level.of("activations") for level in levels), default=0) / 1e6


# %% [markdown]
# **Predict:** one block's forward has two products: 512 × 128 by 128 × 512, and 512 × 512 by 512 ×
# 128. A product of $a \times b$ and $b \times c$ has $2abc$ operations, and the backward has twice as
# many operations as the forward. How many ms do twelve blocks take at 1 TFLOP/s?

# %% guess="plain_ms"
plain_ms = 12 * 3 * 4 * 512 * 128 * 512 / 1e9  # your prediction, in ms

# %%
four = Cluster(4, machine="1 TFLOP/s, 1000 TB/s")
all_kept = four.run(stack, plain)
beside(plain_ms, all_kept.trace.duration_ms, "ms")
print(f"{held(all_kept):.1f} MB of activations at most")

# %% [markdown]
# **Predict:** now a device has 30 MB. The parameters take 6.3 MB, and each block keeps 3.4 MB. In
# which block does the run stop?

# %%
small = Cluster(4, machine="1 TFLOP/s, 1000 TB/s, 30 MB")
too_much = small.run(stack, plain, expect_error=True)

# %% [markdown]
# **Notice:** seven blocks keep 23.9 MB; the eighth does not fit. More ranks with smaller
# parts of the batch divide only the activations. The shards of lab 13 divide everything except the
# activations.
#
# ## Compute it again
#
# Keep only the *input* of a block, and compute the block a second time in the backward. The method
# is called **checkpointing**. A block is **kept**, or it is computed **again**.

# %% [markdown]
# The blocks have dropout. **Predict:** with checkpointing, dropout is computed twice. Which property
# of both computations must be equal?
#
# <details><summary>An answer</summary>
#
# Both computations have to drop the same numbers. Otherwise the output and the gradients come from
# two different networks. After the second computation, the generator of random numbers must again
# have the state from before the second computation.
#
# </details>

# %% [markdown]
# ## Your turn: again
#
# `torch.get_rng_state()` returns the state of the generator, and `torch.set_rng_state` sets it. At
# the end of `with torch.random.fork_rng(devices=[]):`, the generator gets its old state back. In
# `forward` and in `backward` of a `Function`, autograd makes a graph only under
# `torch.enable_grad()`.


# %% exercise="Again"
class Again(torch.autograd.Function):
    """Forward: compute function(*inputs), keep only the inputs. Backward: compute function again.

    inputs are tensors, some of which require a gradient, and function returns a tensor. Parameters
    get the same gradients as without this class. The second computation draws the same random
    numbers as the first, and afterwards the generator is in the same state as before.
    """

    @staticmethod
    def forward(ctx, function, *inputs):
        # BEGIN SOLUTION
        ctx.function, ctx.state = function, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return function(*inputs)  # no graph is made here
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            y = ctx.function(*inputs)
        y.backward(gradient)
        return None, *(x.grad for x in inputs)
        # END SOLUTION


# %% check="Again"
check(Again)

# %% [markdown]
# **Predict:** a backward takes as long as two forwards. Every block now has a second forward. How
# many ms does the step take?

# %% guess="again_ms"
again_ms = 4 / 3 * plain_ms  # your prediction, in ms


# %%
def once_more(block, x):
    return Again.apply(block, x)


again = small.run(stack, once_more)
beside(again_ms, again.trace.duration_ms, "ms, in 30 MB")
print(
    "the norms of all gradients are the same to the last digit:", again.results == all_kept.results
)

# %%
from ddpkit.view import compare, show_held

show_held({"all kept": all_kept, "too much": too_much, "again": again}, kind=None, limit=30e6)

# %% [markdown]
# **Notice:** without a limit, the bytes of a rank grow to 49.1 MB. On the device of 30 MB,
# the run stops at the cross. With `Again`, the bytes grow slowly in the forward, because a rank
# keeps only the inputs. In the backward, the curve has one tooth for each block, because the inside
# of the block is computed again. The rank holds 17.6 MB at most.

# %% [markdown]
# torch also has checkpointing, as `torch.utils.checkpoint.checkpoint`.

# %%
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def by_torch(block, x):
    return checkpoint(block, x, use_reentrant=False)


# %% guess="stops_ms"
stops_ms = (3 + 1 / 2) / 3 * plain_ms  # your prediction of torch's time, in ms

# %%
torchs = small.run(stack, by_torch)
beside(stops_ms, torchs.trace.duration_ms, "ms by torch")
print(f"{held(again):.1f} MB of activations by yours, {held(torchs):.1f} MB by torch's")

# %% [markdown]
# **Predict:** why is torch's `checkpoint` faster than your `Again`?
#
# <details><summary>An answer</summary>
#
# torch stops the second forward as soon as it has all tensors that the backward needs. The backward
# does not need the output of `narrow`, so torch leaves out half of the second forward. Your `Again`
# computes the whole block, as torch does with `use_reentrant=True`.
#
# </details>

# %% [markdown]
# ## How many blocks to one checkpoint?
#
# One checkpoint may hold several blocks in a row. Suppose that each checkpoint holds $s$ of the $n$
# blocks. Then a rank keeps $n/s$ inputs. While one checkpoint is computed again, the rank also holds
# the inside of $s$ blocks. Call the bytes of an input a *share*, and let a block keep $k$ shares:
#
# $$ \text{shares} = \frac{n}{s} + k\,s + \text{constant} $$

# %% [markdown]
# First take 64 layers, each of which keeps as many bytes as its input has, so $k = 1$.
#
# **Predict:** for which $s$ is the number of shares smallest?

# %% guess="best"
best = 64**0.5  # your prediction: layers to one checkpoint


# %%
class Layer(nn.Sequential):
    def __init__(self, number):
        torch.manual_seed(number)
        super().__init__(nn.Linear(128, 128), nn.Tanh())


def in_parts(kind, count, size):
    blocks = [kind(number) for number in range(count)]
    parts = [nn.Sequential(*blocks[i : i + size]) for i in range(0, count, size)]
    by_blocks(parts, once_more)


# %%
one = Cluster(1, machine="1 TFLOP/s, 1000 TB/s")


def shares_of(kind, count, sizes):
    runs = {size: one.run(in_parts, kind, count, size) for size in sizes}
    found = {size: round(held(run) * 1e6 / (512 * 128 * 4)) for size, run in runs.items()}
    for size, shares in found.items():
        print(f"{size:3} to one: {shares:3} shares, {runs[size].trace.duration_ms:.4f} ms")
    return found


layers = shares_of(Layer, 64, (1, 2, 4, 8, 16, 32, 64))

# %%
beside(best, min(layers, key=layers.get), "layers to one")

# %% [markdown]
# **Predict:** now take 16 of our blocks, each of which keeps $k = 13$ shares. For which $s$ is the
# number of shares smallest?

# %%
_ = shares_of(Block, 16, (1, 2, 4, 8))

# %% [markdown]
# **Notice:** the number of shares is smallest at $s = \sqrt{n/k}$: 8 for the layers, and 1.1
# for the blocks. The well-known rule $\sqrt n$ ([Chen et al.
# 2016](https://arxiv.org/abs/1604.06174)) holds for layers that keep as much as their input. A
# transformer's layer keeps at least 17 times its input ([Korthikanti et al.
# 2022](https://arxiv.org/abs/2205.05198)), so every layer gets a checkpoint of its own. The time is
# the same for all $s$.

# %% [markdown]
# ## In slices
#
# In lab 12 you cut a block into slices. The forward of such a block has an all-reduce. Below you
# will write a **policy**, a function that decides which outputs of operations are kept.
# `dist.all_reduce` changes a tensor in place and has no new output to keep. Therefore the next block
# uses torch's functional collectives, which return a new tensor.

# %%
import torch.distributed._functional_collectives as functional


def summed(x):
    return functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))


class SumForward(torch.autograd.Function):
    """Forward: the sum over the ranks. Backward: the gradient as given."""

    @staticmethod
    def forward(ctx, x):
        return summed(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


# %%
class SumBackward(torch.autograd.Function):
    """Forward: x as given. Backward: the sum over the ranks."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return summed(gradient)


# %%
class Half(nn.Module):
    def __init__(self, number):
        super().__init__()
        rank, part = dist.get_rank(), 2048 // dist.get_world_size()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 * number + rank)
            self.wide, self.narrow = nn.Linear(128, part), nn.Linear(part, 128, bias=False)

    def forward(self, x):
        hidden = nn.functional.gelu(self.wide(SumBackward.apply(x)))
        return x + SumForward.apply(self.narrow(nn.functional.dropout(hidden, 0.1)))


# %%
def slices(forward):
    blocks = [nn.Sequential(Half(2 * number), Half(2 * number + 1)) for number in range(6)]
    with step():
        by_blocks(blocks, forward)


linked = Cluster(4, machine="1 TFLOP/s, 1000 TB/s", link="100 Gbit/s, 5 us")

# %% [markdown]
# Six blocks have two halves each. Each half has one all-reduce in the forward and one in the
# backward, so a step has 24 all-reduces. An all-reduce on a ring of four ranks has 6 hops of a
# quarter of 262,144 B each.
#
# **Predict:** does a block in slices also send its sums again? How many ms does a rank wait with
# `Again`?

# %% guess="sent_again_ms"
sent_again_ms = 36 * 6 * (262144 / 4 / 12.5e9 + 5e-6) * 1e3  # your prediction, in ms


# %%
def exposed_ms(run):
    """Return the time in which the first rank communicates without computing."""
    return run.trace.breakdown()[0].exposed_ns / 1e6


def sums(run):
    return sum(one.is_collective for one in run.trace.of(0))


def row(name, run):
    about = f"{name:16} {run.trace.duration_ms:.4f} ms, {exposed_ms(run):.4f} exposed"
    print(f"{about}, {sums(run)} all-reduces, {held(run):.1f} MB held")


ways = {"all kept": plain, "again": once_more, "torch's": by_torch}
sliced = {name: linked.run(slices, way) for name, way in ways.items()}
for name, run in sliced.items():
    row(name, run)
beside(sent_again_ms, exposed_ms(sliced["again"]), "ms of waiting")

# %% [markdown]
# **Notice:** with `Again`, the 12 all-reduces of the forward are sent a second time. torch's
# version stops the second forward early. So the last all-reduce of each block is not sent again, but
# the all-reduce in the middle is.
#
# ## Your turn: worth keeping
#
# Your policy decides for each operation of a block if the output is kept.

# %% [markdown]
# torch calls the policy for each operation in the forward, and in some versions once more when the
# operation is computed again. `op` is an overload such as `torch.ops.aten.mm.default`. A linear layer is an `addmm` with a
# bias, and an `mm` without a bias. The functional all-reduce and its wait are
# `torch.ops._c10d_functional.all_reduce.default` and `wait_tensor.default`.


# %% exercise="worth_keeping"
def worth_keeping(ctx, op, *args, **kwargs):
    """Return MUST_SAVE for a kept output, PREFER_RECOMPUTE for an output to compute again.

    Outputs of matrix products (mm, addmm, bmm), of the functional all-reduce and of the wait are
    kept: no product and no sum over ranks is made twice. All the rest is computed again.
    """
    # BEGIN SOLUTION
    aten, c10d = torch.ops.aten, torch.ops._c10d_functional
    products = aten.mm.default, aten.addmm.default, aten.bmm.default
    travelled = c10d.all_reduce.default, c10d.wait_tensor.default
    keep = op in products + travelled
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
    # END SOLUTION


# %% check="worth_keeping"
check(worth_keeping)


# %%
def selective(block, x):
    def contexts():
        return create_selective_checkpoint_contexts(worth_keeping)

    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)


sliced["policy"] = linked.run(slices, selective)
row("your policy", sliced["policy"])

# %% [markdown]
# **Notice:** the policy costs no time, and a rank holds 26.0 MB in place of 42.7 MB. The
# policy also keeps the output of `narrow`, although no rank needs this output after the all-reduce.
# torchtitan's selective mode keeps every second product, attention and collectives.

# %% [markdown]
# ## When is computing again free?
#
# Now train replicas of twelve blocks with torch's DDP. The backward hides the all-reduces of the
# gradients. With `Again`, the backward is longer and can hide more of the communication.


# %%
class Blocks(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.blocks = nn.ModuleList(Block(number) for number in range(12))
        self.way = forward

    def forward(self, x):
        for block in self.blocks:
            x = self.way(block, x)
        return x


def replicas(forward):
    net = nn.parallel.DistributedDataParallel(Blocks(forward), bucket_cap_mb=0.55)
    for _ in range(2):
        with step():
            net(tokens()).square().mean().backward()


# %% [markdown]
# **Predict:** on a link of 10 Gbit/s, the ranks spend half of the step waiting. How many times as
# long does a step take with `Again`?

# %% guess="times"
times = 1.03  # your prediction


# %%
def step_ms(run):
    """Return the ms of step 1; 0 if the run was skipped, for too few ranks."""
    return run.trace.step(1).duration_ms if run.trace.steps else 0.0


by_link = {}
for speed in ("100 Gbit/s, 5 us", "10 Gbit/s, 5 us"):
    cluster = Cluster(4, machine="1 TFLOP/s, 1000 TB/s", link=speed)
    by_link[speed] = [cluster.run(replicas, way) for way in (plain, once_more)]
    before, after = map(step_ms, by_link[speed])
    print(f"{speed:17} {before:.4f} ms kept, {after:.4f} ms again")
if before:
    beside(times, after / before, "times as long")

# %%
compare(*by_link["10 Gbit/s, 5 us"], labels=["kept", "again"], step=1)

# %% [markdown]
# **Notice:** a third more arithmetic makes the step 32 % longer on the fast link, but only 3
# % longer on the slow link, where the arithmetic runs while the link is busy. Two blocks' second
# forward remains exposed, because the first bucket has parameters of two blocks, and cannot start
# before both blocks are computed again.

# %% [markdown]
# **In words:** a training computes every block again. A step spends a fifth of its time waiting for
# the network, and 15 GB of memory are free. Which tensors do you keep first, which tensors next, and
# when do you stop?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A limit, and a plan
#
# A block that is computed again takes the time of one more forward. A kept block takes memory. A
# plan says which blocks are computed again. In a pipeline (lab 11), the stages need different plans:
# with 1F1B, the first of four stages holds four micro-batches, and the last stage holds one
# micro-batch.
#
# **Predict:** which stage runs out of memory first?

# %% [markdown]
# ## Your turn: the plan
#
# While one micro-batch is in its backward, `held - 1` other micro-batches wait and keep the bytes of
# all blocks. During the backward of a block, the micro-batch holds the bytes of the *earlier*
# blocks, and the inside of this block. The bytes of the later blocks are already free.

# %%
import itertools


# %% exercise="memory_plan"
def memory_plan(blocks, held, limit):
    """Return for each block True if computed again, for the least time; None if no plan fits.

    blocks is a list of (ms, inside, given): a forward takes `ms`. A kept block holds `inside` bytes
    from forward to backward. A block to compute again holds `given` bytes, and `inside` in all
    during the block's own backward. Backwards run from the last block to the first, and each
    frees the bytes of the block. `held` micro-batches have had the forward when the first backward
    begins. At most `limit` bytes are held at any moment. There are at most ten blocks.
    """
    # BEGIN SOLUTION
    best = None
    for again in itertools.product([False, True], repeat=len(blocks)):
        holds = [given if a else inside for a, (_, inside, given) in zip(again, blocks)]
        levels = [sum(holds[:i]) + inside for i, (_, inside, _) in enumerate(blocks)]
        ms = sum(ms for a, (ms, _, _) in zip(again, blocks) if a)
        if (held - 1) * sum(holds) + max(levels) <= limit and (best is None or ms < best[0]):
            best = ms, list(again)
    return best and best[1]
    # END SOLUTION


# %% check="memory_plan"
check(memory_plan)

# %% [markdown]
# The pipeline has four stages of six blocks, and takes eight micro-batches of 256 rows. A device has
# 20 MB. Parameters and gradients take 6.3 MB, and a backward makes some temporary tensors. So the
# blocks may hold 10 MB.

# %%
one_f_one_b, pipeline_step = carry("one_f_one_b"), carry("pipeline_step")
ROWS, MICRO = 256, 8
BLOCK = 4 * ROWS * 128 * 512 / 1e9, 13 * ROWS * 128 * 4, ROWS * 128 * 4  # ms, inside, given
PLANS = {
    "all kept": [[False] * 6] * 4,
    "all again": [[True] * 6] * 4,
    "plan": [memory_plan([BLOCK] * 6, 4 - stage, 10e6) for stage in range(4)],
}
print("blocks computed again, by stage:", [sum(each) for each in PLANS["plan"]])


# %%
class Stage(nn.Module):
    def __init__(self, stage, again):
        super().__init__()
        self.blocks = nn.ModuleList(Block(6 * stage + number) for number in range(6))
        self.again = again

    def forward(self, x):
        for block, again in zip(self.blocks, self.again):
            x = Again.apply(block, x) if again else block(x)
        return x


# %%
def pipeline(plans):
    rank = dist.get_rank()
    stage = Stage(rank, plans[rank])
    torch.manual_seed(rank)
    rows = [tokens(ROWS) for _ in range(MICRO)] if rank == 0 else None
    aims = [torch.zeros(ROWS, 128) for _ in range(MICRO)] if rank == 3 else None
    order, mse = one_f_one_b(rank, 4, MICRO), nn.functional.mse_loss
    with step():
        return pipeline_step(order, stage, rows, aims, mse, torch.empty(ROWS, 128))


# %% [markdown]
# **Predict:** a pipeline of four stages and eight micro-batches takes as long as 8 + 3 micro-batches
# on one stage. How many ms does a step take if all blocks are kept? How many ms does it take if all
# blocks are computed again?

# %% guess="stages_ms"
stages_ms = (8 + 3) * 6 * 4 * BLOCK[0]  # your prediction: all again, in ms

# %%
runs = {name: four.run(pipeline, plans) for name, plans in PLANS.items()}
for name, run in runs.items():
    loads = ", ".join(f"{held(run, rank):4.1f}" for rank in run.trace.ranks)
    loss = f"{run.results[-1]:.5f}" if run.results[-1] else "none"
    print(f"{name:9} {run.trace.duration_ms:.4f} ms, MB by stage {loads}, loss {loss}")
beside(stages_ms, runs["all again"].trace.duration_ms, "ms with all again")

# %%
show_held(runs, kind=None, limit=20e6)

# %% [markdown]
# **Notice:** without a plan, the first stage needs 50 MB; with the plan, 19 MB are enough,
# and all stages are about equally full. The loss is always the same. The first stage computes five
# blocks again, and the last stage only one. So now the first stage is the slowest. Which work could
# the first stage give away?
#
# <details><summary>An answer</summary>
#
# A block: the stages would then have 5, 6, 6 and 7 blocks.
#
# </details>

# %% [markdown]
# ## Sums in bfloat16
#
# The second part of this lab is about bytes that travel. A **bfloat16** number has 8 bits of
# precision: between 256 and 512, bfloat16 has only the even numbers.
#
# **Predict:** each element is 256 on rank 0, and 1 on the other ranks. Which sum does bfloat16 give
# on 8 ranks? Do all ranks get the same sum?


# %%
def add_ones():
    x = torch.full((16,), 1.0 if dist.get_rank() else 256.0, dtype=torch.bfloat16)
    dist.all_reduce(x)
    return x.int().tolist()


for n in (2, 4, 8):
    found = Cluster(n).run(add_ones).results
    print(f"{n} ranks:", found[0], "" if found[0] == found[-1] else "(others differ)")

# %% [markdown]
# **Notice:** the sixteen elements have the same terms, but three different sums. In
# bfloat16, 256 + 1 is 256 again. The ones change the sum only if they are added to each other before
# 256 is added. This order depends on the rank where the ring begins, and each part of the tensor
# begins on a different rank. All ranks get the same wrong sums, so replicas stay equal.

# %% [markdown]
# A ring rounds at each hop. With two exchanges, numbers are rounded only twice: each rank sends
# parts in bfloat16 to their owners, each owner adds the parts in float32, and all ranks gather the
# rounded means.


# %% tags=["answers"]
def all_gather(whole, mine):
    """Fill `whole` with all ranks' `mine`, in the order of the ranks."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine)


# %% [markdown]
# ## Your turn: half of the bytes


# %% exercise="mean_by_halves"
def mean_by_halves(flat):
    """Return the mean of all ranks' `flat`, float32, for half of the bytes of an all-reduce.

    bfloat16 travels. Each number is rounded before the sending, and each mean is rounded once.
    Sums are float32. All ranks return the same, bit for bit. flat remains unchanged.
    """
    # BEGIN SOLUTION
    n = dist.get_world_size()
    parts = nn.functional.pad(flat, (0, -len(flat) % n)).bfloat16()
    coming = torch.empty_like(parts)
    dist.all_to_all_single(coming, parts)
    mine = (coming.view(n, -1).float().sum(0) / n).bfloat16()
    whole = torch.empty_like(parts)
    all_gather(whole, mine)
    return whole[: len(flat)].float()
    # END SOLUTION


# %% check="mean_by_halves"
check(mean_by_halves)


# %%
def in_bfloat16(flat):
    short = flat.bfloat16()
    dist.all_reduce(short)
    return short.float() / dist.get_world_size()


def in_float32(flat):
    whole = flat.clone()
    dist.all_reduce(whole)
    return whole / dist.get_world_size()


# %% [markdown]
# A partial sum of $k$ numbers is about $\sqrt k$ times as large as one number. So the error of
# rounding the partial sum is $\sqrt k$ times the error of rounding one number. Squares of errors add
# up. On 16 ranks, the error of a ring is $\sqrt{1 + 17/2 - 1/16}$ times the error of one rounding;
# the error of `mean_by_halves` is $\sqrt 2$ times the error of one rounding. One rounding to bfloat16
# has a relative error of 0.00165.

# %% guess="ring_error"
ring_error = (1 + (16 + 1) / 2 - 1 / 16) ** 0.5 * 0.00165  # your prediction, on 16 ranks


# %%
def errors(ways):
    torch.manual_seed(dist.get_rank())
    flat = torch.randn(10_000)
    exact = flat.double()
    dist.all_reduce(exact)
    exact /= dist.get_world_size()
    return [((way(flat) - exact).norm() / exact.norm()).item() for way in ways]


table = {n: Cluster(n).run(errors, [in_bfloat16, mean_by_halves]).results[0] for n in (2, 4, 8, 16)}
for n, found in table.items():
    if found:
        print(f"{n:2} ranks: ring {found[0]:.5f}, halves {found[1]:.5f}")
if table[16]:
    beside(ring_error, table[16][0], "of the mean, by a ring on 16 ranks")

# %%
import matplotlib.pyplot as plt

plt.style.use("ddpkit.view.plain")
shown = {n: found for n, found in table.items() if found}
for name, at, marker in (("ring in bfloat16", 0, "o"), ("mean_by_halves", 1, "s")):
    plt.plot(list(shown), [found[at] for found in shown.values()], marker=marker, label=name)
plt.xlabel("ranks"), plt.ylabel("error of the mean")
_ = plt.legend()

# %% [markdown]
# **Notice:** the ring's error grows with the ranks, and the error of `mean_by_halves` does not.

# %% [markdown]
# **Predict:** four ranks average a million numbers, over links of 25 Gbit/s with a latency of 5 us.
# How many ms does each of the three ways take?

# %% guess="halves_ms"
halves_ms = 6 * (5e5 / 3.125e9 + 5e-6) * 1e3  # your prediction for two bytes a number, in ms


# %%
def timed(way):
    way(torch.ones(1_000_000))


quarter = Cluster(4, machine="1 TFLOP/s, 1000 TB/s", link="25 Gbit/s, 5 us")
for way in (in_float32, in_bfloat16, mean_by_halves):
    run = quarter.run(timed, way)
    print(f"{way.__name__:14} {run.trace.duration_ms:.4f} ms")
beside(halves_ms, run.trace.duration_ms, "ms by halves")

# %% [markdown]
# **Notice:** `mean_by_halves` takes as long as a ring in bfloat16, without the errors of a
# ring.

# %% [markdown]
# **In words:** the same training is stable on 96 GPUs, but not on 384 GPUs. Gradients are reduced in
# bfloat16. Which number do you compute, which number do you measure, and which change helps without
# more bytes?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## A gradient that is infinite
#
# The smallest number of float16 is $6 \cdot 10^{-8}$, so smaller gradients vanish. Programs multiply
# the loss by a **scale**, and divide the gradients afterwards. A gradient that is too large becomes
# inf. Then the program skips the step and halves the scale. After some good steps the scale is
# doubled.

# %% [markdown]
# **Predict:** ranks have parts of the parameters, as in lab 13. A gradient of rank 2 is inf. Rank 2 skips
# the step. When will anybody notice?
#
# ## Your turn: one scale for all


# %% exercise="LossScale"
class LossScale:
    """scale is the factor of the loss; all ranks step, or none does."""

    def __init__(self, scale, patience):
        # BEGIN SOLUTION
        self.scale, self.patience, self.good = scale, patience, 0
        # END SOLUTION

    def step(self, optimizer):
        """Divide the gradients by scale, step, and return True; skip if any rank has inf or nan.

        At a skip no rank steps, scale is halved on every rank, and step returns False. After
        `patience` steps without a skip, scale is doubled, and the count begins anew. A rank may
        have no gradient at all. Use one collective of at most 8 bytes.
        """
        # BEGIN SOLUTION
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"]]
        gradients = [g for g in gradients if g is not None]
        bad = torch.tensor(float(not all(g.isfinite().all() for g in gradients)))
        dist.all_reduce(bad, dist.ReduceOp.MAX)
        if bad:
            self.scale, self.good = self.scale / 2, 0
            return False
        for g in gradients:
            g /= self.scale
        optimizer.step()
        self.good += 1
        if self.good == self.patience:
            self.scale, self.good = self.scale * 2, 0
        return True
        # END SOLUTION


# %% check="LossScale"
check(LossScale)


# %%
class Alone(LossScale):
    """Each rank decides for itself."""

    def step(self, optimizer):
        (p,) = optimizer.param_groups[0]["params"]
        if finite := bool(p.grad.isfinite().all()):
            p.grad /= self.scale
            optimizer.step()
        self.good = self.good + 1 if finite else 0
        self.scale *= 1 if finite else 0.5
        if self.good == 5:
            self.scale, self.good = 2 * self.scale, 0
        return finite


# %%
def forty(kind):
    torch.manual_seed(dist.get_rank())
    p, scaler, said = nn.Parameter(torch.randn(64)), kind(2.0**16, 5), ""
    optimizer = torch.optim.SGD([p], lr=0.1)
    for number in range(40):
        large = 8 if number == 10 and dist.get_rank() == 2 else 1
        gradient = torch.rand(64) * large * (0.4, 0.4, 0.2, 0.2)[dist.get_rank() % 4]
        p.grad = (gradient * scaler.scale).half().float()
        said += ".X"[not scaler.step(optimizer)]
    return said


# %% [markdown]
# `.` is a step, and `X` is a skipped step. **Predict:** how many steps does each rank take?

# %%
for kind in (LossScale, Alone):
    print(kind.__name__)
    for rank, said in enumerate(four.run(forty, kind).results):
        print(f"  rank {rank}: {said}, {said.count('.') if said else 0} steps")

# %% [markdown]
# **Notice:** with `Alone`, the ranks take about equally many steps, but not the same steps.
# No error is raised, although the parts of the model have used different gradients. torch's
# GradScaler lets each process decide. With DDP, an averaged gradient is inf on all ranks or on none.
# With shards, a gradient may be inf on one rank alone, so FSDP has a `ShardedGradScaler`, in which
# the ranks first agree.

# %% [markdown]
# ## Optional: weights that stand still
#
# **Predict:** a weight is 1, in bfloat16. What is the smallest update that changes the weight?
#
# <details><summary>An answer</summary>
#
# The next larger number is 1 + 1/128, so an increase must be at least half of 1/128, or 0.0039. A
# decrease must be at least 0.002. With a learning rate of 0.001, a gradient below 2 changes nothing.
#
# </details>


# %%
def at_random(x, generator):
    """Round to bfloat16, up or down by chance: right on average."""
    noise = torch.randint(0, 2**16, x.shape, generator=generator, dtype=torch.int32)
    return ((x.view(torch.int32) + noise) & -65536).view(torch.float32).bfloat16()


ROUNDING = {
    "float32": lambda x, _: x,
    "masters": lambda x, _: x,
    "bfloat16": lambda x, _: x.bfloat16().float(),
    "at random": lambda x, generator: at_random(x, generator).float(),
}


# %%
def moved(way, seed_by_rank):
    torch.manual_seed(0)
    w, aims = torch.ones(1000), torch.randn(1000) * 0.6
    generator = torch.Generator().manual_seed(seed_by_rank * dist.get_rank())
    for _ in range(400):
        used = w.bfloat16().float() if way == "masters" else w  # the weights that the model has
        w = ROUNDING[way](w - 0.001 * 2 * (used - aims), generator)
    dist.all_reduce(spread := w.clone(), dist.ReduceOp.MAX)
    apart = (spread - w).abs().max()
    dist.all_reduce(apart, dist.ReduceOp.MAX)
    return (w - aims).square().mean().item(), (w != 1).float().mean().item(), apart.item()


# %%
TRIED = ("float32", 0), ("bfloat16", 0), ("masters", 0), ("at random", 0), ("at random", 1)
for way, seeds in TRIED:
    loss, share, apart = four.run(moved, way, seeds).results[0] or (0, 0, 0)
    print(
        f"{way:9} {'by rank' if seeds else '':7} loss {loss:.3f}, {share:.0%} moved, apart {apart:.2f}"
    )

# %% [markdown]
# **Notice:** in bfloat16, weights with small gradients never move. If weights are rounded up
# or down at random, they move by the right amount on average. But then replicas need the same random
# numbers, or they drift apart. Most programs keep **masters**: the optimizer moves weights in
# float32, and the model computes with a copy of these weights in bfloat16.

# %% [markdown]
# ## One byte a number
#
# float8_e4m3fn has 1 sign, 4 bits of exponent and 3 bits of fraction; its largest number is 448.
# Without a **scale**, a tensor of small numbers becomes 0. gloo does not support float8, so send
# bytes: `x.view(torch.uint8)` shows the same bits as a different type.

# %% [markdown]
# **Predict:** how many scales should a gather use: one scale for all tensors, one scale for each
# tensor of the model, or one scale for each shard on each rank?
#
# ## Your turn: gather in fp8
#
# A view of four bytes as one float32 needs an address that 4 divides.


# %% exercise="gather_fp8"
def gather_fp8(shards):
    """Return the whole tensor for each shard of the rank: float32, in the order of the ranks.

    Numbers travel as float8_e4m3fn, a byte each. Each shard has its own scale, float32: the largest
    absolute value of the shard is sent as 448, the largest number of the type. A shard of zeros
    stays zero. A single all-gather carries all numbers and scales. Shards have the same shapes on
    all ranks, are joined along the first dimension, and remain unchanged.
    """
    # BEGIN SOLUTION
    n, sizes = dist.get_world_size(), [x.numel() for x in shards]
    scales = torch.stack([x.abs().max() for x in shards]).clamp(min=2**-100) / 448
    numbers = [(x / s).to(torch.float8_e4m3fn).flatten() for x, s in zip(shards, scales)]
    mine = torch.cat([x.view(torch.uint8) for x in (scales, *numbers)])
    whole = mine.new_empty(n * len(mine))
    all_gather(whole, mine)
    first, *rest = whole.view(n, -1).split([scales.nbytes, *sizes], dim=1)
    scales = first.flatten().view(torch.float32).view(n, -1, 1).unbind(1)
    numbers = [each.flatten().view(torch.float8_e4m3fn).float().view(n, -1) for each in rest]
    joined = [x * s for x, s in zip(numbers, scales)]
    return [each.view(-1, *x.shape[1:]) for each, x in zip(joined, shards)]
    # END SOLUTION


# %% check="gather_fp8"
check(gather_fp8)

# %% [markdown]
# Each rank has three shards of 64 · 512, 128 and 64 · 512 numbers. The second shard has small
# numbers, and the third shard has large numbers. Each rank sends 65,676 B in three hops.

# %% guess="fp8_ms"
fp8_ms = 3 * (65676 / 3.125e9 + 5e-6) * 1e3  # your prediction, in ms


# %%
def shards():
    torch.manual_seed(dist.get_rank())
    return [torch.randn(64, 512), torch.randn(128) * 1e-4, torch.randn(64, 512) * 30]


def gathered(x):
    whole = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    all_gather(whole, x)
    return whole


def in_fp8():
    return gather_fp8(shards())


def with_dtype(dtype):
    return [gathered(x.to(dtype)).float() for x in shards()]


# %%
exact = quarter.run(with_dtype, torch.float32)
short = quarter.run(with_dtype, torch.bfloat16)
eight = quarter.run(in_fp8)
for name, run in (("float32", exact), ("bfloat16", short), ("fp8", eight)):
    pairs = zip(run.results[0] or [], exact.results[0] or [])
    wrong = ", ".join(f"{((a - b).norm() / b.norm()).item():.4f}" for a, b in pairs)
    print(f"{name:8} {run.trace.duration_ms:.4f} ms, errors {wrong}")
beside(fp8_ms, eight.trace.duration_ms, "ms in fp8")


# %%
def one_scale():
    sizes = [x.shape for x in shards()]
    flat = torch.cat([x.flatten() for x in shards()])
    (whole,) = gather_fp8([flat])
    mine = whole.view(dist.get_world_size(), -1)[0].split([size.numel() for size in sizes])
    return [((a.view(b.shape) - b).norm() / b.norm()).item() for a, b in zip(mine, shards())]


print("errors with one scale for all:", [f"{each:.4f}" for each in one.run(one_scale).results[0]])

# %% [markdown]
# **Notice:** with one byte for each number, the error is 2.6 %, and the time is a quarter of
# float32's time. With one scale for all tensors, the tensor of small numbers vanishes. FSDP can
# gather in fp8. But a matrix product needs *one* scale for the whole tensor. So FSDP's ranks first
# agree on the largest values, by one all-reduce for all parameters.

# %% [markdown]
# ## A model of eight billion parameters
#
# Does Llama 3.1 8B fit on eight GPUs of 80 GiB, which are 85.9 GB? With `values=False`, ranks count
# large operations but do not compute them, so this computer can find the times and the memory of a
# large model. With `alike=1`, only one rank runs, and ddpkit copies its times for the other seven
# ranks. The model has 32 blocks of width 4,096. A rank has two sequences of 8,192 tokens.


# %%
def linear(before, after):
    return nn.Linear(before, after, bias=False)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.out = nn.RMSNorm(4096), linear(4096, 4096), linear(4096, 4096)
        self.k, self.v = linear(4096, 1024), linear(4096, 1024)

    def forward(self, x):
        y = self.norm(x)
        heads = (f(y).unflatten(-1, (-1, 128)).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k, v = heads
        k, v = (each.repeat_interleave(4, dim=1) for each in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


# %%
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.gate, self.up = nn.RMSNorm(4096), linear(4096, 14336), linear(4096, 14336)
        self.down = linear(14336, 4096)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def one_block():
    if dist.is_torchelastic_launched():  # under torchrun the values would be computed
        return None
    x = torch.randn(2, 8192, 4096, dtype=torch.bfloat16, requires_grad=True)
    return kept(nn.Sequential(Attention(), Gated()).bfloat16(), x), x.nbytes


# %%
inside, given = Cluster(1, machine="H100 SXM", values=False).run(one_block).results[0] or (0, 1)
print(f"a block keeps {inside / 1e9:.2f} GB, {inside / given:.0f} times its input")

# %% [markdown]
# torch's FSDP2 shards the parameters, as in lab 13, and `way` is one of your ways to compute a block.


# %%
class Llama(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.embedding, self.way = nn.Embedding(128256, 4096), way
        self.blocks = nn.ModuleList(nn.Sequential(Attention(), Gated()) for _ in range(32))
        self.end = nn.Sequential(nn.RMSNorm(4096), linear(4096, 128256))

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = self.way(block, x)
        return self.end(x)


# %%
def sharded(way):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with torch.device("meta"):  # no rank holds the whole model
        net = Llama(way)
    short = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*net.blocks, net):
        fully_shard(part, mp_policy=short)
    return net.to_empty(device="cpu")


# %%
def large_step(way):
    if dist.is_torchelastic_launched():
        return
    net = sharded(way)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, fused=True)
    ids = torch.randint(0, 500, (2, 8192))
    with step():
        loss = nn.functional.cross_entropy(net(ids).float().flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()


# %% [markdown]
# **Predict:** all 32 blocks are kept. In which block does the memory run out?

# %%
eighty = Cluster(8, machine="H100 SXM", link="450 GB/s, 3 us", values=False, alike=1)
all_kept = eighty.run(large_step, plain, expect_error=True)

# %% [markdown]
# The 32 blocks would keep 120 GB. Parameters take 7 GB: 4 GB of shards, and 3 GB that are gathered.
# The memory is full in the 21st block.
#
# **Predict:** now every block keeps only its input. The memory is fullest at the loss: the logits,
# their softmax and their gradient are 2 · 8,192 · 128,256 numbers of 4 B each. The parameters
# take another 6 GB. How many GB does a rank hold at most?

# %% guess="large_gb"
large_gb = 32 * 0.134 + 3 * 2 * 8192 * 128256 * 4 / 1e9 + 6  # your prediction, in GB


# %%
def peak_gb(run):
    """Return the most GB that rank 0 holds; 0 if a job skips the run."""
    peak = run.trace.peak(0)
    return peak.total / 1e9 if peak else 0.0


fits = eighty.run(large_step, by_torch)
beside(large_gb, peak_gb(fits), "GB")

# %% [markdown]
# **Notice:** checkpointing decides whether the model fits. With checkpoints, most of the
# memory belongs to the loss.

# %% [markdown]
# torchtitan has published a step of Llama 3.1 8B on eight H100 with 96 GB
# ([table](https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md)).
# The policy keeps attention and every second product:


# %%
def every_second():
    numbers, aten = {True: itertools.count(), False: itertools.count()}, torch.ops.aten

    def policy(ctx, op, *_, **__):
        keep = op == aten._scaled_dot_product_flash_attention_for_cpu.default
        if op == aten.mm.default:
            keep = next(numbers[ctx.is_recompute]) % 2 == 0
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def as_published(block, x):
    return checkpoint(block, x, use_reentrant=False, context_fn=every_second)


# %%
theirs = Cluster(8, machine="H100 96GB", link="450 GB/s, 3 us", values=False, alike=1)
run = theirs.run(large_step, as_published)
if run.trace.steps:
    speed = 2 * 8192 / run.trace.step(0).duration_ms * 1e3
    print(f"{speed:,.0f} tokens a second on each GPU; published 5,762")
    print(f"{peak_gb(run) * 1e9 / 2**30:.1f} GiB held at most; published 82.4 GiB reserved")

# %% [markdown]
# **Notice:** the kit's numbers differ from the published numbers, for known reasons. The kit
# counts tensors, but torch's allocator reserves more bytes than the tensors have. The speed of the
# kit's machine, as a share of its peak, was fitted to other published steps. `RMSNorm` is several
# operations here, and one operation on a GPU: lab 20 has a norm of one operation.

# %% [markdown]
# ## The way out
#
# This program uses checkpointing with a policy in plain torch, under DDP.
#
# ```python
# from functools import partial
# import torch, torch.distributed as dist
# from torch import nn
# from torch.utils.checkpoint import CheckpointPolicy as Policy
# from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts as contexts
#
# def policy(ctx, op, *args, **kwargs):
#     keep = op == torch.ops.aten.addmm.default
#     return Policy.MUST_SAVE if keep else Policy.PREFER_RECOMPUTE
#
# class Again(nn.Sequential):
#     def forward(self, x):
#         keep = partial(contexts, policy)
#         return checkpoint(super().forward, x, use_reentrant=False, context_fn=keep)
#
# dist.init_process_group("gloo")
# blocks = [Again(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]
# net = nn.parallel.DistributedDataParallel(nn.Sequential(*blocks))
# net(torch.randn(16, 64)).square().mean().backward()
# print("rank", dist.get_rank(), "gradient", blocks[0][0].weight.grad.norm().item())
# ```

# %% [markdown]
# **Notice:** the policy keeps outputs of `addmm`, and computes GELU and dropout again.
# torch's `checkpoint` restores the state of the generator, as your `Again` does.

# %% [markdown]
# ## You have built
#
# - a count of the bytes that a block keeps, and checkpointing that draws the same random numbers;
# - a policy that sends nothing twice, and a plan for each stage of a pipeline;
# - sums that round twice, a loss scale on which all ranks agree, and gathers in fp8.
#
# **Next:** the link between two sites is slow. How rarely may the ranks talk?

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 18_memory.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
