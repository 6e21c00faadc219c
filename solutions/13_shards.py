# ---
# jupyter:
#   ddpkit:
#     builds: "an optimizer and a model in shards, one shard on each rank: up to the third stage of ZeRO"
#     minutes: 100
#     needs: labs 04, 05 and 06
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
# # 13 · Shards
#
# **You will build** training in which no rank holds everything: first the ranks share out the
# optimizer's state, then the gradients, then the parameters. The model learns the same as on one
# process, and you count the bytes that each rank holds and sends.
#
# **You need** labs 04, 05 and 06. About 100 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check

# %%
import os, tempfile
from functools import partial
from torch import nn

unflatten = carry("unflatten")
average_flat = carry("average_flat")

# %% [markdown]
# ## What a rank holds
#
# In data-parallel training, all ranks hold the same tensors. In mixed precision a rank holds, for
# each parameter:
#
# - 2 bytes for the parameter and 2 for its gradient, in bfloat16 or float16;
# - 12 bytes for Adam: a copy of the parameter in float32, a momentum and a variance.
#
# ZeRO ([Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054)) shares these bytes out in three
# stages: the optimizer's 12 bytes, then the gradients too, then the parameters too.

# %% [markdown]
# **Predict:** a model of 7.5 billion parameters trains on 64 ranks. How many GB does each rank hold
# if nothing is shared out? How many GB does each rank hold in stage 3?

# %% guess="whole_gb"
whole_gb = 7.5 * (2 + 2 + 12)  # your prediction

# %% guess="third_gb"
third_gb = 7.5 * (2 + 2 + 12) / 64  # your prediction


# %% exercise="state_bytes"
def state_bytes(parameters: int, ranks: int, stage: int) -> int:
    """Return the bytes of parameters, gradients and optimizer on the rank that holds most.

    The training has mixed precision and Adam. In stage 0, all ranks hold everything. Stage 1 shares
    out the optimizer, stage 2 the gradients too, and stage 3 the parameters too.
    """
    # BEGIN SOLUTION
    share = -(-parameters // ranks)
    optimizer = share if stage >= 1 else parameters
    gradients = share if stage >= 2 else parameters
    weights = share if stage >= 3 else parameters
    return 12 * optimizer + 2 * gradients + 2 * weights
    # END SOLUTION


# %% check="state_bytes"
check(state_bytes)

# %%
from ddpkit.view import explore_state

explore_state(state_bytes, billions=7.5, ranks=64, gigabytes=80)  # GB: an A100's memory
beside(whole_gb, state_bytes(7_500_000_000, 64, 0) / 1e9, "GB, stage 0")
beside(third_gb, state_bytes(7_500_000_000, 64, 3) / 1e9, "GB, stage 3")

# %% [markdown]
# **Notice:** the optimizer takes most of the memory, and is shared out first. Move the slider
# for ranks: stages 1 and 2 fall towards the grey marks, the bytes that a stage leaves whole. These
# are 4 bytes for each parameter in stage 1, and 2 bytes in stage 2. Only stage 3 keeps falling.
#
# Move the slider for memory: which stages fit into 24 GB, and on how many ranks?

# %% [markdown]
# ## A model that does not fit
#
# Our model is smaller: twelve blocks, 12.6 MB of parameters in float32. Adam keeps two numbers for
# each parameter. Each of the four ranks computes at the speed of one laptop core; compute time is
# counted, not measured.


# %%
def blocks():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(12)]


def train(net, optimizer, average=None, steps=2):
    torch.manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(512, 512)).square().mean().backward()
        if average is not None:
            average(net)
        optimizer.step()
    return net(torch.ones(1, 512)).detach()


# %%
def whole():
    net = nn.Sequential(*blocks())
    return train(net, torch.optim.Adam(net.parameters(), 1e-3), average_flat)


LINK = "2.5 Gbit/s, 50 us"
cluster = Cluster(4, link=LINK, machine="laptop core")

# %% [markdown]
# `most` returns the peak memory of rank 0 in the last step, by kind. `megabytes` counts the bytes
# that a rank sends, as in lab 12: an all-reduce sends $2 \cdot \frac{3}{4}$ of its bytes, an
# all-gather sends three times its input, and a reduce-scatter sends $\frac{3}{4}$ of its input.

# %% [markdown]
# In lab 12, the factor of a reduce-scatter was 3. If a call gets a list, torch reports the bytes of
# one part; if a call gets one tensor, torch reports the bytes of all four parts. In both cases, the
# result is the bytes of three parts.


# %%
TIMES = {"all_gather_into_tensor": 3, "reduce_scatter_tensor": 3 / 4, "all_reduce": 2 * 3 / 4}
TIMES["broadcast"] = 1  # each rank passes the bytes on once


def megabytes(run):
    if not run.trace.steps:
        return 0  # under torchrun with too few ranks, the run is skipped
    counts = run.trace.step(1).traffic.collectives(0)
    return sum(TIMES.get(name, 0) * each.bytes for name, each in counts.items()) / 1e6


# %%
def most(run, kind):
    """Return the peak MB of one kind of memory on rank 0, in the last step."""
    if not run.trace.memory:
        return 0
    start_ns, end_ns = run.trace.step(-1).window_of(0)
    levels = [level for level in run.trace.memory[0] if start_ns <= level.ns < end_ns]
    return max(level.of(kind) for level in levels) / 1e6


def tell(**runs):
    print("MB of     parameters  gradients  optimizer   sent in a step")
    for name, run in runs.items():
        held = "".join(
            f"{most(run, kind):11.1f}" for kind in ("parameters", "gradients", "optimizer")
        )
        print(f"{name:9}{held}{megabytes(run):16.1f}")


# %% [markdown]
# **Predict:** how many megabytes of state does Adam keep on each rank? How many megabytes does a
# rank send in a step?

# %% guess="adam_mb"
adam_mb = 2 * 12.6  # your prediction

# %% guess="reduced_mb"
reduced_mb = 2 * 3 / 4 * 12.6  # your prediction

# %%
replicas = cluster.run(whole)
tell(replicas=replicas)
beside(adam_mb, most(replicas, "optimizer"), "MB of Adam's state")
beside(reduced_mb, megabytes(replicas), "MB sent by each rank")

# %% [markdown]
# Now run the same training on a machine with 40 MB of memory.
#
# **Predict:** in which line of `train` does the run fail, and in which step?

# %%
small = Cluster(4, link=LINK, machine="67 GFLOP/s, 9.6 GB/s, 40 MB, 3 us")
full = small.run(whole, expect_error=True)

# %% [markdown]
# **Notice:** forward and backward fit. The run fails in the first step of the optimizer,
# when Adam allocates its state: Adam has allocated 14.7 of the 25.2 MB when the memory is full. No
# tensor here is large by itself, but all four ranks hold the same tensors. By the end of this lab
# the same training runs on this machine.

# %% [markdown]
# ## Chunks of a line
#
# Lay all numbers of some tensors in one line, fill the line up with zeros, and cut the line into
# four equal chunks: chunk $r$ belongs to rank $r$. A chunk may begin in the middle of a
# parameter, and therefore all chunks can be equally large.


# %% tags=["answers"]
def line(tensors, n):
    """Return all numbers of `tensors` in one line, with zeros up to a length that n divides."""
    parts = [torch.zeros(0)] if not tensors else [each.detach().reshape(-1) for each in tensors]
    flat = torch.cat(parts)
    return nn.functional.pad(flat, (0, -len(flat) % n))


# %% tags=["answers"]
def stretches(tensors, rank, n):
    """List the parts of tensors in chunk `rank` of their line: (tensor, start, stop)."""
    chunk, first, found = len(line(tensors, n)) // n, 0, []
    for each in tensors:
        start = max(rank * chunk - first, 0)
        stop = min((rank + 1) * chunk - first, each.numel())
        if start < stop:
            found.append((each, start, stop))
        first += each.numel()
    return found


# %% [markdown]
# **Predict:** tensors of 6, 3 and 1 numbers, on 4 ranks. Which numbers does rank 1 have? Where are
# the zeros?

# %%
tensors = [torch.arange(6.0), torch.arange(3.0), torch.arange(1.0)]
print("line:", line(tensors, 4).tolist())
for rank in range(4):
    print(f"rank {rank}:", [(each.numel(), a, b) for each, a, b in stretches(tensors, rank, 4)])

# %% [markdown]
# torch has a function that gathers chunks into a line, and a function that reduces a line into
# chunks. torch 2.13 has renamed both functions. Here each function has one name for all versions.


# %% tags=["answers"]
def all_gather(whole, mine, **how):
    """Fill `whole` with all ranks' chunks; with async_op=True, returns a Work."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine, **how)


def reduce_scatter(mine, whole, **how):
    """Fill `mine` with this rank's chunk of the sum of all ranks' `whole`."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(mine, whole, **how)


# %% [markdown]
# ## Your turn: an optimizer in shards
#
# Adam updates each number independently of all others. A rank can therefore step *its* chunk, with
# only the state of that chunk; then all ranks gather the stepped chunks.
#
# `self.local` is an optimizer of this rank's pieces of parameters. A piece is an `nn.Parameter` too,
# and `p.detach().view(-1)[start:stop]` is a *view*: a step of the piece also changes `p`. `unflatten`
# (lab 05) takes a line without the zeros at its end.

# %% [markdown]
# Real models have a few special cases:
#
# - frozen parameters (`requires_grad` is False) are not shared out at all;
# - unused parameters have `grad` None: the optimizer does not step them, not even by weight decay;
# - a scheduler changes `self.param_groups[i]["lr"]` between steps, and the change must reach all
#   pieces.


# %% exercise="ShardedOptimizer"
class ShardedOptimizer(torch.optim.Optimizer):
    """Steps like `optimizer_class(params, **options)`, with the state of only 1/n of the numbers.

    Works for optimizers that update each number on its own (SGD, Adam, AdamW). Before a step, the
    gradients are averaged already, so all ranks have the same gradients. After a step, all ranks
    have the same parameters, bit for bit, and keep no gradient. Each group of parameters is a line
    of its own.
    """

    def __init__(self, params, optimizer_class, **options):
        self.make = partial(optimizer_class, **options)
        self.local = None  # made with the first group: the optimizer of this rank's pieces
        self.pieces = []  # (piece, parameter, start, stop)
        super().__init__(params, options)  # calls add_param_group for each group

    def add_param_group(self, group):
        """Share out one more group of parameters, {"params": …, and options of its own}."""
        super().add_param_group(group)
        group = self.param_groups[-1]  # complete now: "params" is a list
        # BEGIN SOLUTION
        trainable = [p for p in group["params"] if p.requires_grad]
        own = []
        for p, start, stop in stretches(trainable, dist.get_rank(), dist.get_world_size()):
            own.append(nn.Parameter(p.detach().view(-1)[start:stop]))
            self.pieces.append((own[-1], p, start, stop))
        if self.local is None:
            self.local = self.make([{**group, "params": own}])
        else:
            self.local.add_param_group({**group, "params": own})
        # END SOLUTION
        for option, value in self.local.param_groups[-1].items():
            group.setdefault(option, value)  # options that the group does not set

    @torch.no_grad()
    def step(self, closure=None):
        """Step this rank's pieces, and gather the pieces of all ranks."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # BEGIN SOLUTION
        for group, own in zip(self.param_groups, self.local.param_groups):
            own.update({option: group[option] for option in group if option != "params"})
        for piece, p, start, stop in self.pieces:
            piece.grad = None if p.grad is None else p.grad.reshape(-1)[start:stop]
        self.local.step()
        self.local.zero_grad()  # a piece's gradient would keep the whole gradient alive
        n, rank = dist.get_world_size(), dist.get_rank()
        for group in self.param_groups:
            trainable = [p for p in group["params"] if p.requires_grad]
            flat = line(trainable, n)
            all_gather(flat, flat.chunk(n)[rank].clone())
            numbers = flat[: sum(p.numel() for p in trainable)]
            for p, values in zip(trainable, unflatten(numbers, trainable)):
                p.copy_(values)
        # END SOLUTION
        return loss

    def state_dict(self):
        """Return the state of this rank's pieces."""
        return self.local.state_dict()

    def load_state_dict(self, state):
        """Load a state that `state_dict` returned on this rank."""
        self.local.load_state_dict(state)
        for group, own in zip(self.param_groups, self.local.param_groups):
            group.update({option: own[option] for option in own if option != "params"})


# %% check="ShardedOptimizer"
check(ShardedOptimizer)

# %% [markdown]
# **Predict:** the ranks all-reduce gradients as before, and then gather parameters. How many
# megabytes does a rank send in a step now?

# %% guess="first_mb"
first_mb = 3 * 3 / 4 * 12.6  # your prediction


# %%
def first_stage(average=None):
    net = nn.Sequential(*blocks())
    return train(
        net, ShardedOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3), average or average_flat
    )


def as_before(run):
    if None not in run.results:  # None under torchrun with too few ranks
        pairs = zip(run.results, replicas.results)
        print("learned the same:", all(torch.allclose(a, b, atol=1e-5) for a, b in pairs))


# %%
first = cluster.run(first_stage)
as_before(first)
tell(replicas=replicas, first=first)
beside(first_mb, megabytes(first), "MB sent by each rank")

# %% [markdown]
# **Notice:** each rank holds a quarter of the state, and sends one and a half times the
# bytes. Are these extra bytes necessary? An all-reduce gives every rank the mean of *all* gradients.

# %% [markdown]
# ## Your turn: the mean for the owner alone
#
# Only the owner needs the mean of a gradient: the owner is the rank that steps the parameter.


# %% exercise="reduce_to_owner"
def reduce_to_owner(flat):
    """Return this rank's chunk of the mean of all ranks' `flat`; n divides the length of `flat`.

    `flat` stays unchanged, and the result has memory of its own.
    """
    # BEGIN SOLUTION
    n = dist.get_world_size()
    mine = torch.empty_like(flat[: len(flat) // n])
    reduce_scatter(mine, flat / n)
    return mine
    # END SOLUTION


# %% check="reduce_to_owner"
check(reduce_to_owner)

# %% [markdown]
# In the second stage a rank has only the mean of its own chunk. For the rest of the line the rank
# keeps the gradients of its own batch, and never reads them.
#
# **Predict:** how many megabytes does a rank send in a step now?

# %% guess="second_mb"
second_mb = 2 * 3 / 4 * 12.6  # your prediction


# %%
@torch.no_grad()
def average_own(net):
    gradients, n, rank = [p.grad for p in net.parameters()], dist.get_world_size(), dist.get_rank()
    flat = line(gradients, n)
    flat.chunk(n)[rank].copy_(reduce_to_owner(flat))
    numbers = flat[: sum(each.numel() for each in gradients)]  # without zeros at the end
    for gradient, values in zip(gradients, unflatten(numbers, gradients)):
        gradient.copy_(values)


# %%
second = cluster.run(first_stage, average_own)
as_before(second)
tell(replicas=replicas, first=first, second=second)
beside(second_mb, megabytes(second), "MB sent by each rank")

# %% [markdown]
# **Notice:** each rank sends exactly as many bytes as a replica. An all-reduce *is* a
# reduce-scatter and an all-gather (lab 03); the optimizer's step now stands between the two. Saving
# memory for the optimizer's state therefore costs no extra bytes.
#
# The gradients are still whole, though: a rank has all gradients before it sends the first. The next
# section changes that.

# %% [markdown]
# ## The parameters too
#
# **Predict:** when does a rank need the parameters of block 5? How often must the parameters travel
# in a step, if a rank keeps them no longer than needed?

# %% [markdown]
# The parameters of a block become views of one line, `flat`. `flat.untyped_storage().resize_(0)`
# frees the memory of the line, and a later resize allocates it again. The views stay, without
# numbers. torch's own FSDP resizes memory in the same way, because autograd's graph keeps references
# to these very tensors.


# %% tags=["answers"]
def slots(block):
    """Return {trainable parameter of a block: all its places as (module, name)}."""
    found = {}
    for module in block.modules():
        for name, p in module.named_parameters(recurse=False):
            if p.requires_grad:
                found.setdefault(p, []).append((module, name))
    return found


# %% tags=["answers"]
def views_of(flat, block):
    """Replace a block's trainable parameters by views of `flat`, in order; return the views."""
    found, views = slots(block), []
    sizes = [p.numel() for p in found]
    for numbers, (p, places) in zip(flat[: sum(sizes)].split(sizes), found.items()):
        views.append(nn.Parameter(numbers.data.view(p.shape)))
        for module, name in places:
            delattr(module, name)
            vars(module)[name] = views[-1]  # not registered: optimizers must find only the shard
    return views


# %% [markdown]
# ## Your turn: a block that is mostly not there
#
# You write when the parameters come and go. The calls are given:
#
# - `self.before(1)` and `self.before(-1)` bring the parameters, before a forward and before a
#   backward; `self.after()` frees them;
# - `y.register_hook(f)` makes autograd call `f` when the gradient of `y` is ready: then the block's
#   backward begins;
# - when all gradients of the block are ready, `self.ready()` is called, and then `self.after()`.


# %% exercise="FullyShard"
class FullyShard(nn.Module):
    """A block that holds its parameters only while it computes; each rank keeps a shard of them.

    `shard` is a Parameter for the optimizer: this rank's chunk of the line of the block's trainable
    parameters. A backward adds the mean of all ranks' gradients to `shard.grad`. `flat` is the
    whole line, in `dtype` if it is given; the block's tensors are `views` of `flat`. A block takes
    and returns a tensor, and runs forward once for each backward. Blocks that share a tensor must
    be in one FullyShard.
    """

    def __init__(self, block, dtype=None):
        super().__init__()
        self.block, self.work, self.missing = block, None, set()
        n, rank = dist.get_world_size(), dist.get_rank()
        self.flat = line(list(slots(block)), n)
        self.shard = nn.Parameter(self.flat.chunk(n)[rank].clone())
        self.flat = self.flat.to(dtype)
        self.nbytes = self.flat.untyped_storage().nbytes()
        self.views = views_of(self.flat, block)
        for frozen in block.parameters():  # only frozen parameters are left
            frozen.data = frozen.data.to(dtype)
        for view in self.views:
            view.register_post_accumulate_grad_hook(self.arrived)
        self.free()

    def gather(self):
        """Allocate the `nbytes` of `flat`, start to gather all shards, and return the Work."""
        # BEGIN SOLUTION
        self.flat.untyped_storage().resize_(self.nbytes)
        return all_gather(self.flat, self.shard.detach().to(self.flat.dtype), async_op=True)
        # END SOLUTION

    def free(self):
        """Free the memory of `flat`."""
        # BEGIN SOLUTION
        self.flat.untyped_storage().resize_(0)
        # END SOLUTION

    def ready(self):
        """Add the mean gradient to `shard.grad`, and leave no whole gradient behind.

        A view whose `grad` is None counts as zeros.
        """
        # BEGIN SOLUTION
        gradients = [torch.zeros_like(v) if v.grad is None else v.grad for v in self.views]
        for view in self.views:
            view.grad = None
        mine = reduce_to_owner(line(gradients, dist.get_world_size())).to(self.shard.dtype)
        self.shard.grad = mine if self.shard.grad is None else self.shard.grad + mine
        # END SOLUTION

    def forward(self, x):
        """Return the block's output. Outside forward and backward, parameters take no memory."""
        # BEGIN SOLUTION
        self.before(1)
        y = self.block(x)
        self.after()
        if y.requires_grad:
            y.register_hook(self.backward_begins)
        return y
        # END SOLUTION

    # Given

    def before(self, step):
        """Bring the parameters: before a forward (step 1), before a backward (step -1)."""
        self.begin()
        self.wait()

    def begin(self):
        """Start to gather, if that has not begun yet."""
        if self.work is None:
            self.work = self.gather()

    def wait(self):
        """Wait until the parameters have arrived."""
        self.work.wait()

    def after(self):
        """Free the parameters."""
        self.work = None
        self.free()

    def backward_begins(self, gradient):
        """The hook of the block's output: the block's backward begins."""
        self.missing = set(self.views)
        self.before(-1)
        after_all = torch.autograd.Variable._execution_engine.queue_callback
        after_all(self.backward_ends)  # autograd calls it at the end of the whole backward

    def arrived(self, view):
        """The hook of each view: its gradient is ready."""
        self.missing.discard(view)
        if not self.missing:
            self.ready()
            self.after()

    def backward_ends(self):
        """Finish a block with unused views, at the end of the whole backward."""
        if self.missing:
            self.missing = set()
            self.ready()
            self.after()


# %% check="FullyShard"
check(FullyShard)

# %% [markdown]
# **Predict:** how many megabytes does a rank send in a step? How many of the 12.6 MB of parameters
# does a rank hold at most?

# %% guess="third_mb"
third_mb = 3 * 3 / 4 * 12.6  # your prediction

# %% guess="held_mb"
held_mb = 12.6 / 4 + 12.6 / 12  # your prediction


# %%
def third_stage(prepare=None, dtype=None):
    units = [FullyShard(block, dtype) for block in blocks()]
    if prepare is not None:
        prepare(units)
    net = nn.Sequential(*units)
    return train(net, torch.optim.Adam(net.parameters(), 1e-3))


# %%
from ddpkit import show

third = cluster.run(third_stage)
as_before(third)
tell(replicas=replicas, first=first, second=second, third=third)
beside(third_mb, megabytes(third), "MB sent by each rank")
beside(held_mb, most(third, "parameters"), "MB of parameters at most")

# %% [markdown]
# **Notice:** a rank holds a quarter of everything, and one whole block. The price is
# traffic: each parameter travels twice instead of once, since a rank keeps no parameters between
# forward and backward. A rank sends one and a half times as many bytes as a replica.
#
# Does the training run on the machine with 40 MB?

# %%
fits = small.run(third_stage)
as_before(fits)
show(third, step=1)

# %% [markdown]
# **Notice:** the training runs. But no rank computes while a block's parameters travel: a
# rank asks for the parameters only when the block is due to compute, and then waits for the network.
#
# **Predict:** which gathers could start earlier, and at which moment?

# %% [markdown]
# ## Your turn: gather the next block
#
# While block $k$ computes, the network is idle. A rank can therefore gather block $k+1$ meanwhile.
# Backward goes from the last block to the first, so there a rank gathers block $k-1$.
#
# `prefetch` replaces a unit's `before`. `prefetch` needs two methods of a unit: `begin()` starts the
# gather, unless the gather has begun already, and returns at once; `wait()` returns when the unit's
# parameters are there.


# %% exercise="prefetch"
def prefetch(units, k: int, step: int) -> None:
    """Bring the parameters of unit k, and start the gather of the next unit before you return.

    In a forward (step 1), the next unit is k + 1; in a backward (step -1), it is k - 1. Start no
    gather of any unit after the next.
    """
    # BEGIN SOLUTION
    units[k].begin()
    if 0 <= k + step < len(units):
        units[k + step].begin()
    units[k].wait()
    # END SOLUTION


# %% check="prefetch"
check(prefetch)

# %% [markdown]
# A block computes 4 ms forward and 8 ms backward. A gather of one block takes 2.7 ms. The
# reduce-scatter of a block's gradients also takes 2.7 ms, and `ready` waits for the reduce-scatter.
#
# **Predict:** without prefetching, 96 ms of a step are exposed. How many ms are exposed with
# prefetching?

# %% guess="exposed_ms"
exposed_ms = 2 * 2.7 + 12 * 2.7  # your prediction


# %%
def ahead(units):
    for k, unit in enumerate(units):
        unit.before = partial(prefetch, units, k)


def exposed(run):
    return run.trace.step(1).breakdown()[0].exposed_ns / 1e6 if run.trace.steps else None


# %%
from ddpkit.view import compare

prefetched = cluster.run(third_stage, ahead)
as_before(prefetched)
compare(third, prefetched, labels=["when needed", "prefetched"], step=1)
beside(exposed_ms, exposed(prefetched), "ms exposed")
tell(third=third, prefetched=prefetched)

# %% [markdown]
# **Notice:** the gathers now run while the blocks compute, except for the first gather of
# forward and the first of backward. The price is a second block in memory. The reduce-scatters are
# still exposed. Only the optimizer needs their results: a rank could wait for all reduce-scatters
# once, at the end, instead of in each block.

# %% [markdown]
# **In words:** DDP hides its communication only behind the backward. Where does a fully sharded
# model hide its communication? Which condition must the compute time and the bytes of a block meet,
# so that all communication is hidden?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## The same in torch
#
# [`fully_shard`](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) does all of
# these steps: units, hooks, resized memory, prefetching, and one wait for the reduce-scatters at the
# end. With `reshard_after_forward=False`, a rank keeps parameters from forward to backward.
#
# **Predict:** how many bytes does a rank send with each of the two settings? How many bytes does it
# send with `ZeroRedundancyOptimizer`, torch's version of your `ShardedOptimizer`?


# %%
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def torchs(shape=(4,), names=("shard",), **options):
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    net = nn.Sequential(*blocks())
    for block in net:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)
    return train(net, torch.optim.Adam(net.parameters(), 1e-3))


# %%
from torch.distributed.optim import ZeroRedundancyOptimizer


def torchs_optimizer():
    net = nn.Sequential(*blocks())
    sharded = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3)
    return train(net, sharded, average_flat)


# %%
own = cluster.run(torchs)
kept = cluster.run(torchs, reshard_after_forward=False)
zero = cluster.run(torchs_optimizer)
for run in (own, kept, zero):
    as_before(run)
tell(first=first, zero=zero, prefetched=prefetched, own=own, kept=kept)
if zero.trace.steps:
    print(f"torch's optimizer, {zero.trace.step(1).traffic.table()}")
    print(f"exposed: yours {exposed(prefetched):.0f} ms, torch's {exposed(own):.0f} ms")

# %% [markdown]
# **Notice:** `fully_shard` sends the same bytes as your version. With
# `reshard_after_forward=False` a rank sends as many bytes as a replica, but holds whole parameters
# between forward and backward. torch's optimizer sends more bytes than your optimizer: each rank
# owns whole parameters, and broadcasts each of them.
#
# Your version is faster here, but not on a GPU: `fully_shard` overlaps communication on streams of a
# GPU, and a CPU has no streams.

# %% [markdown]
# On many hosts, training often shards inside a host, where links are fast, and keeps replicas
# between hosts: a mesh of two dimensions. torch calls this layout hybrid sharding (HSDP).
#
# **Predict:** on 2 × 2 ranks, which tensors are gathered, and over how many ranks? Which tensors
# travel between replicas?

# %%
hybrid = cluster.run(torchs, (2, 2), ("replicate", "shard"))
as_before(hybrid)
for name, run in (("sharded", own), ("hybrid", hybrid)):
    if run.trace.steps:
        print(f"{name}: {most(run, 'optimizer'):.1f} MB of Adam's state")
        print(f"         {run.trace.step(1).traffic.table()}")

# %% [markdown]
# **Notice:** each rank holds half of the state instead of a quarter. Two ranks gather chunks
# of half a block. After the reduce-scatter, a rank all-reduces the gradients of its chunk with the
# rank of the other host that has the same chunk.

# %% [markdown]
# ## Saved on four ranks, loaded on three
#
# One rank of four has failed. The shards of four ranks are on disk, and three ranks continue. Each
# of the three ranks needs numbers from one or two of the old shards.
#
# A shard is a chunk as torch cuts it (`Tensor.chunk`, DTensor's `Shard(0)`): each shard has $\lceil
# \text{length} / n \rceil$ numbers, and the last shards have the numbers that are left, or none.


# %% exercise="pieces"
def pieces(length: int, old: int, new: int, rank: int) -> list[tuple[int, int, int]]:
    """List the pieces of old shards that rank `rank` of `new` ranks reads, in order.

    A piece is (old rank, start, stop): the numbers from start to stop, counted within the old
    rank's shard. No piece is empty. Together, the pieces are the new rank's shard. The whole line
    has `length` numbers, and `old` ranks saved it.
    """
    # BEGIN SOLUTION
    before, now = -(-length // old), -(-length // new)
    start, stop = min(rank * now, length), min((rank + 1) * now, length)
    found = []
    for owner in range(old):
        first = owner * before
        a, b = max(start, first), min(stop, first + before)
        if a < b:
            found.append((owner, a - first, b - first))
    return found
    # END SOLUTION


# %% check="pieces"
check(pieces)


# %%
def one_folder():
    """Return the name of a folder that rank 0 makes, on all ranks: all hosts must share the disk."""
    found = [tempfile.mkdtemp(prefix="lab13-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


folder = Cluster(4).run(one_folder).results[0]


# %%
def train_and_save():
    units = [FullyShard(block) for block in blocks()]
    net = nn.Sequential(*units)
    y = train(net, torch.optim.Adam(net.parameters(), 1e-3))
    torch.save([unit.shard.detach() for unit in units], f"{folder}/{dist.get_rank()}.pt")
    return y


# %%
@torch.no_grad()
def load_on_others():
    n, rank, units = dist.get_world_size(), dist.get_rank(), [FullyShard(each) for each in blocks()]
    length = len(units[0].flat)  # the same for each block; 3 and 4 divide it
    wanted = pieces(length, 4, n, rank)
    shards = [torch.load(f"{folder}/{owner}.pt", mmap=True) for owner, _, _ in wanted]
    for k, unit in enumerate(units):
        read = [each[k][a:b] for each, (_, a, b) in zip(shards, wanted)]
        unit.shard.copy_(torch.cat(read))
    return nn.Sequential(*units)(torch.ones(1, 512)), wanted


# %% [markdown]
# With `mmap=True`, torch reads only the used parts of a file from disk.
#
# **Predict:** from which old shards does each of the three ranks read?

# %%
saved = cluster.run(train_and_save)
three = Cluster(3, link=LINK, machine="laptop core")
loaded = three.run(load_on_others)
if None not in saved.results + loaded.results:  # None under torchrun with too few ranks
    for rank, (y, wanted) in enumerate(loaded.results):
        print(f"rank {rank} reads {wanted}; the model is right: {torch.equal(y, saved.results[0])}")

# %% [markdown]
# `torch.distributed.checkpoint` does the same for every DTensor: the file `.metadata` says which
# part of which tensor lies in which file.
#
# **Predict:** which files will there be?


# %%
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict


def torchs_checkpoint(load):
    net = nn.Sequential(*blocks())
    for block in net:
        fully_shard(block, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    if not load:
        train(net, torch.optim.Adam(net.parameters(), 1e-3))
    state = get_model_state_dict(net)
    (dcp.load if load else dcp.save)(state, checkpoint_id=f"{folder}/torchs")
    return net(torch.ones(1, 512)).detach()


# %%
torchs_saved = cluster.run(torchs_checkpoint, False)
torchs_loaded = three.run(torchs_checkpoint, True)
if None not in torchs_saved.results + torchs_loaded.results:
    print(*sorted(os.listdir(f"{folder}/torchs")))
    print("the same:", torch.allclose(torchs_saved.results[0], torchs_loaded.results[0]))

# %% [markdown]
# ## Optional: half the bytes
#
# `FullyShard(block, torch.bfloat16)` keeps the shards in float32 for the optimizer. The gathers, the
# compute and the reduce-scatters use bfloat16.
#
# **Predict:** how many megabytes does a rank send in a step? Which kinds of memory shrink?


# %%
class ToHalf(nn.Module):
    def forward(self, x):
        return x.bfloat16()


def mixed():
    units = [FullyShard(block, torch.bfloat16) for block in blocks()]
    net = nn.Sequential(ToHalf(), *units)
    return train(net, torch.optim.Adam(net.parameters(), 1e-3))


# %%
half = cluster.run(mixed)
tell(third=third, half=half)

# %% [markdown]
# **Notice:** half as many bytes travel, and the gathered block takes half the memory. But
# the shards, their gradients and Adam's state stay in float32: bfloat16 would lose the small steps
# of an optimizer.

# %% [markdown]
# ## Optional: compute again
#
# The activations still take memory. **Checkpointing** keeps only a unit's input, and computes the
# unit's activations again in backward. Here a unit has three blocks.
#
# **Predict:** by how many percent does the compute time of a rank grow? By how many MB do the
# activations shrink?


# %%
from torch.utils.checkpoint import checkpoint


class Again(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def in_threes(kind):
    found = blocks()
    net = nn.Sequential(*(FullyShard(kind(*found[i : i + 3])) for i in range(0, 12, 3)))
    return train(net, torch.optim.Adam(net.parameters(), 1e-3))


# %%
for kind in (nn.Sequential, Again):
    run = cluster.run(in_threes, kind)
    if run.trace.steps:
        computed = run.trace.step(1).breakdown()[0].compute_ns / 1e6
        print(
            f"{kind.__name__:10} {computed:.0f} ms of compute, {most(run, 'activations'):.1f} MB held"
        )

# %% [markdown]
# **Notice:** a rank computes one more forward. A backward takes as long as two forwards, so
# the compute time grows by about a third. A rank holds the inputs of the units, and the activations
# inside the unit whose backward runs.

# %% [markdown]
# ## The way out
#
# This program shards a model in plain torch:
#
# ```python
# import torch, torch.distributed as dist
# from torch import nn
# from torch.distributed.device_mesh import init_device_mesh
# from torch.distributed.fsdp import fully_shard
#
# dist.init_process_group("gloo")
# mesh = init_device_mesh("cpu", (dist.get_world_size(),))
# torch.manual_seed(0)
# net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)))
# for block in net:
#     fully_shard(block, mesh=mesh)
# fully_shard(net, mesh=mesh)
# optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
# for step in range(4):
#     optimizer.zero_grad()
#     loss = net(torch.ones(16, 64)).square().mean()
#     loss.backward()
#     optimizer.step()
#     print("rank", dist.get_rank(), "step", step, loss.item())
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - counted the bytes that a rank holds for each parameter: 16, or fewer in each stage of ZeRO;
# - shared out an optimizer's state, and saved half of the all-reduce's bytes;
# - shared out gradients and parameters, and trained on a machine that was too small before;
# - hidden most of the gathers behind compute;
# - loaded the shards of four ranks on three ranks.
#
# **Next:** when should you use replicas, slices, stages or shards?

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 13_shards.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
