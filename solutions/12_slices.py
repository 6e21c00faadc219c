# ---
# jupyter:
#   ddpkit:
#     builds: "layers in slices, one slice on each rank; a halo; the norm of all gradients"
#     minutes: 90
#     needs: labs 02 and 03
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
# # 12 · Slices
#
# **You will build** layers that no rank holds whole: an MLP cut into slices, an image cut into
# strips, a sequence cut into parts. Each layer gives the output of one process, and you count the
# bytes that the ranks send.
#
# **You need** labs 02 and 03. About 90 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, check, span

# %%
from torch import nn

# %% [markdown]
# ## One layer, too large for one rank
#
# A data-parallel rank holds the whole model. If one layer is too large for a rank, the layer itself
# must be cut. A **slice** is the part of a layer that one rank holds.

# %% [markdown]
# A **token** is one position of a sequence, as a row of numbers. Our model is the MLP of a
# transformer: the first layer turns the 256 numbers of each token into 1,024, and the second layer
# turns these 1,024 into 256 again. A batch has 512 tokens.


# %%
def whole_mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))


def some_tokens(count=512):
    torch.manual_seed(1)
    return torch.randn(4, count // 4, 256)


# %% [markdown]
# We take four ranks on a link of 1 Gbit/s. Each rank computes at the speed of one laptop core. The
# emulation does not measure the compute: it counts the FLOPs and the bytes of each operation.

# %% [markdown]
# The ranks communicate in a ring of 4 ranks (lab 03). In an all-gather, a rank sends three parts; a
# part is the tensor that one rank gives. In a reduce-scatter, a rank also sends three parts; here a
# part is the tensor that one rank keeps. In an all-reduce, a rank sends $2 \cdot \frac{3}{4}$ of the
# summed tensor. So the code below counts the megabytes that a rank sends:

# %%
cluster = Cluster(4, link="1 Gbit/s, 200 us", machine="laptop core")
TIMES = {"all_gather": 3, "reduce_scatter": 3, "all_reduce": 2 * 3 / 4}


def megabytes(run):
    counts = run.traffic.collectives(0)
    return sum(TIMES.get(name, 0) * each.bytes for name, each in counts.items()) / 1e6


# %% [markdown]
# Up to rounding, the ranks have to return the same output as one process with the whole model.


# %%
def as_one_process(run, right):
    if None not in run.results:  # None under torchrun with too few ranks
        same = all(torch.allclose(each, right, atol=1e-5) for each in run.results)
        print("every rank's result is that of one process:", same)


# %% [markdown]
# ## Columns
#
# A linear layer is $y = x W + b$. Cut $W$ into four blocks of columns, one for each rank: then a
# rank computes a quarter of the numbers of $y$, for all tokens. (torch keeps $W$ transposed:
# `weight` has a row for each number of $y$. So columns of the formula are rows of `weight`.)
#
# The next layer needs all numbers of $y$. So the ranks gather all numbers.


# %%
def my_columns(layer, x):
    weight, bias = (each.chunk(4)[dist.get_rank()] for each in (layer.weight, layer.bias))
    with span("columns"):  # a bar in the picture
        return nn.functional.linear(x, weight, bias)


def side_by_side(part):
    parts = [torch.empty_like(part) for _ in range(4)]
    dist.all_gather(parts, part)
    return torch.cat(parts, dim=-1)


# %%
@torch.no_grad()
def by_columns():
    first, gelu, second = whole_mlp()
    hidden = side_by_side(gelu(my_columns(first, some_tokens())))
    return side_by_side(my_columns(second, hidden))


# %% [markdown]
# The picture shows, to scale, the block that each rank holds:

# %%
from ddpkit.view import Matrix, show_blocks

x, w1 = Matrix("x", 512, 256), Matrix("W₁", 256, 1024, "columns")
show_blocks(x, w1, whole=False)

# %% [markdown]
# **Predict:** the ranks gather two tensors: 512 tokens with 1,024 hidden numbers, and 512 tokens
# with 256 outputs. A number has 4 bytes. How many megabytes does a rank send?

# %% guess="gathered_mb"
gathered_mb = 3 * 512 * (1024 / 4 + 256 / 4) * 4 / 1e6  # your prediction

# %%
from ddpkit import show

columns = cluster.run(by_columns)
as_one_process(columns, whole_mlp()(some_tokens()))
show(columns)
beside(gathered_mb, megabytes(columns), "MB sent by each rank")

# %% [markdown]
# **Notice:** most of the run is communication. Every rank needs all 1,024 hidden numbers of
# every token, but computes only a quarter of these numbers. The ranks compute for a short while, and
# then all ranks wait for the network.

# %% [markdown]
# ## Then rows
#
# Cut the *second* layer the other way, into blocks of rows. With $h$ cut by columns and $W_2$ by
# rows,
#
# $$ h\, W_2 = h_0 W_2^{(0)} + h_1 W_2^{(1)} + h_2 W_2^{(2)} + h_3 W_2^{(3)} $$
#
# For its own term, rank $r$ needs only its own hidden numbers $h_r$. GELU does not change this, since
# GELU maps each number on its own.

# %% [markdown]
# **Predict:** which tensor travels now, and which shape does the tensor have?

# %%
show_blocks(x, w1, Matrix("W₂", 1024, 256, "rows"))

# %% [markdown]
# The ranks still have to add up the terms: one all-reduce of the *small* output. Megatron-LM cuts a
# transformer in this way ([Shoeybi et al. 2019](https://arxiv.org/abs/1909.08053), section 3).
#
# Try other cuts in the cell above: cut the second layer by columns too, or cut x by rows, so that
# each rank has a part of the tokens.

# %% [markdown]
# ## Your turn: what backward has to add
#
# At the end of the forward, the ranks add up their terms. The backward has to add, too: all ranks
# start with the same $x$, but each rank uses $x$ for its own slice. So the backward of each rank
# computes only a *part* of the gradient of $x$.

# %% [markdown]
# You need two functions of autograd: `Copied` where slices begin, and `Summed` where slices end. The
# forward of each function works like the backward of the other.
#
# A function of autograd is a class with two static methods: `forward`, and `backward`, which gets
# the gradient of the output and returns the gradient of the input.


# %% exercise="Copied"
class Copied(torch.autograd.Function):
    """Stands where slices begin. Forward: x. Backward: the sum of all ranks' gradients.

    All ranks have the same x. Arguments stay unchanged, because other code may still use them.
    Send no more bytes than one all-reduce.
    """

    @staticmethod
    def forward(ctx, x):
        # BEGIN SOLUTION
        return x.view_as(x)
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        total = gradient.clone()
        dist.all_reduce(total)
        return total
        # END SOLUTION


# %% check="Copied"
check(Copied)


# %% exercise="Summed"
class Summed(torch.autograd.Function):
    """Stands where slices end. Forward: the sum of all ranks' x. Backward: the gradient, unchanged.

    All ranks go on with the same sum, so each rank already has the whole gradient of the sum.
    Send no more bytes than one all-reduce.
    """

    @staticmethod
    def forward(ctx, x):
        # BEGIN SOLUTION
        total = x.clone()
        dist.all_reduce(total)
        return total
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        return gradient
        # END SOLUTION


# %% check="Summed"
check(Summed)

# %% [markdown]
# ## Your turn: the sliced MLP
#
# A slice is a separate layer with copies of its part of the weights. A view in the place of a copy
# would keep the whole weight in memory.


# %% tags=["answers"]
def linear(weight, bias=None):
    """Return a new Linear with copies of this weight and this bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    state = {"weight": weight, "bias": bias} if bias is not None else {"weight": weight}
    layer.load_state_dict(state)
    return layer.to(weight.dtype)


# %% [markdown]
# **Predict:** every rank has the whole $b_2$. If each rank adds $b_2$ before the sum, how many times
# does the output contain $b_2$?


# %% exercise="SlicedMLP"
class SlicedMLP(nn.Module):
    """This rank's slice of `Sequential(Linear, activation, Linear)`; all ranks get equal outputs.

    A rank computes the hidden numbers in its part of `tensor_split`, and holds copies of the
    parameters for these numbers: about 1/n of both weights and of the first bias. Every rank has
    the whole second bias. Inputs and their gradients are whole, and the same on all ranks. Only two
    tensors travel: the output in forward, and the gradient of x in backward.
    """

    def __init__(self, mlp, rank, world_size):
        super().__init__()
        first, self.activation, second = mlp
        # BEGIN SOLUTION
        mine = torch.arange(first.out_features).tensor_split(world_size)[rank]
        self.up = linear(first.weight[mine], first.bias[mine])
        self.down = linear(second.weight[:, mine])
        self.bias = nn.Parameter(second.bias.detach().clone())
        # END SOLUTION

    def forward(self, x):
        # BEGIN SOLUTION
        hidden = self.activation(self.up(Copied.apply(x)))
        return Summed.apply(self.down(hidden)) + self.bias
        # END SOLUTION


# %% check="SlicedMLP"
check(SlicedMLP)

# %% [markdown]
# **Predict:** the forward has an all-reduce of the output, and the backward has an all-reduce of the
# gradient of $x$. Both tensors have 512 × 256 numbers. How many megabytes does a rank send in both
# all-reduces together?

# %% guess="summed_mb"
summed_mb = 2 * (2 * 3 / 4) * 512 * 256 * 4 / 1e6  # your prediction


# %%
def with_slices(count=512):
    x = some_tokens(count).requires_grad_()  # a gradient is needed, as if other layers came before
    mlp = SlicedMLP(whole_mlp(), dist.get_rank(), dist.get_world_size())
    y = mlp(x)
    y.square().mean().backward()
    return y.detach()


# %%
slices = cluster.run(with_slices)
as_one_process(slices, whole_mlp()(some_tokens()))
show(slices)
beside(summed_mb, megabytes(slices), "MB, forward and backward")

# %% [markdown]
# **Notice:** the 512 × 1,024 hidden numbers, the largest tensor of all, never travel. With
# columns alone, the forward sent 2.5 times as many bytes.

# %% [markdown]
# ## Slices, or replicas?
#
# Lab 06 kept the model whole and cut the batch: there the *gradients* of the weights travel. Here
# the *activations* travel. With $d$ = 256, $4d$ hidden numbers and $T$ tokens in the batch, a rank
# sends
#
# $$ \text{replicas: } 2\cdot\tfrac{3}{4}\cdot 8 d^2 \cdot 4\,\text{B} \qquad
#    \text{slices: } 2 \cdot 2\cdot\tfrac{3}{4}\cdot T d \cdot 4\,\text{B} $$
#
# **Predict:** at how many tokens do replicas and slices send the same number of bytes?

# %% guess="balance"
balance = 4 * 256  # your prediction, in tokens


# %%
from torch.nn.parallel import DistributedDataParallel


def with_replicas(count):
    x = some_tokens(count).chunk(4, dim=1)[dist.get_rank()]
    model = DistributedDataParallel(whole_mlp(), init_sync=False)
    y = model(x)
    y.square().mean().backward()


# %%
sent = {}
for count in (128, 512, 2048):
    replicas, slices = (cluster.run(f, count) for f in (with_replicas, with_slices))
    sent[count] = megabytes(replicas), megabytes(slices)
    print(f"{count:5} tokens: replicas {sent[count][0]:.2f} MB, slices {sent[count][1]:.2f} MB")
by_replicas, by_slices = sent[512]
if by_slices:
    beside(balance, 512 * by_replicas / by_slices, "tokens")

# %% [markdown]
# **Notice:** the bytes of replicas do not depend on the batch; the bytes of slices grow with
# the batch. Both are equal at $T = 4d$: as many tokens as hidden numbers. So replicas suit large
# batches, and slices suit wide layers. Slices also need only about a quarter of the memory for
# weights.

# %% [markdown]
# **In words:** replicas can hide their communication behind the backward (lab 06). Why is hiding
# harder with slices?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## An image in strips
#
# A fully connected layer needs all of its input. A convolution is easier to distribute, because each
# output depends on a few neighbours only. Cut an image into four strips. For the first row of a
# strip, a 3 × 3 convolution needs one row of the strip above. The **halo** is the rows of the
# neighbours' strips that a rank needs for its own strip. The picture shows one channel:

# %%
show_blocks(Matrix("image", 64, 64, "rows", halo=1))

# %% [markdown]
# Neighbours exchange the rows at their edges. The function starts all messages first, and then waits
# for all of them.


# %% tags=["answers"]
def edges(top, bottom):
    """Send `top` to the rank above, `bottom` to the rank below; return their rows, or zeros."""
    from_above, from_below = (torch.zeros_like(each).contiguous() for each in (bottom, top))
    rank, works = dist.get_rank(), []
    for peer, give, take in ((rank - 1, top, from_above), (rank + 1, bottom, from_below)):
        if 0 <= peer < dist.get_world_size():
            works += [dist.isend(give.contiguous(), peer), dist.irecv(take, peer)]
    for work in works:
        work.wait()
    return from_above, from_below


# %% [markdown]
# ## Your turn: the halo
#
# The forward is easy. For the backward, think of a row that the first strip has lent to the second:
# the last row of the first strip. The convolution of the first strip gives a gradient for this row,
# and the convolution of the second strip gives another gradient for the same row.


# %% exercise="Halo"
class Halo(torch.autograd.Function):
    """Forward: this rank's strip with k rows of each neighbour, and zeros at the rim of the image.

    A strip is [batch, channel, row, column], with at least k rows. Backward: the rows that a strip
    lent also have gradients on the neighbours; send these gradients back, and add them.
    """

    @staticmethod
    def forward(ctx, strip, k):
        # BEGIN SOLUTION
        ctx.k = k
        above, below = edges(strip[:, :, :k], strip[:, :, -k:])
        return torch.cat([above, strip, below], dim=2)
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        k = ctx.k
        from_above, from_below = edges(gradient[:, :, :k], gradient[:, :, -k:])
        mine = gradient[:, :, k:-k].clone()
        mine[:, :, :k] += from_above
        mine[:, :, -k:] += from_below
        return mine, None
        # END SOLUTION


# %% check="Halo"
check(Halo)

# %% [markdown]
# Now we run three convolutions, one after the other, each with a halo of its own. The image has 64 ×
# 64 pixels and 16 channels.
#
# **Predict:** how many kilobytes does rank 1 send to rank 2, for all three convolutions?

# %% guess="halo_kb"
halo_kb = 3 * 64 * 16 * 4 / 1e3  # your prediction


# %%
def image():
    torch.manual_seed(2)
    convolutions = [nn.Conv2d(16, 16, 3, padding=(0, 1)) for _ in range(3)]
    return convolutions, torch.randn(1, 16, 64, 64)


@torch.no_grad()
def in_strips():
    convolutions, x = image()
    strip = x.chunk(4, dim=2)[dist.get_rank()]
    for convolution in convolutions:
        strip = convolution(Halo.apply(strip, 1))
    return strip


# %%
strips = cluster.run(in_strips)
if None not in strips.results:  # None under torchrun with too few ranks
    convolutions, x = image()
    for convolution in convolutions:
        x = convolution(nn.functional.pad(x, (0, 0, 1, 1)))
    print("as one process:", torch.allclose(torch.cat(strips.results, dim=2), x, atol=1e-5))
    print(strips.traffic.table())
    beside(halo_kb, strips.traffic.to(1, 2) / 1e3, "kB")

# %% [markdown]
# **Notice:** a message is one row, 64 × 16 numbers. In an all-gather of all strips, each
# rank would send 48 such rows for each layer.

# %% [markdown]
# ## The rest is computed four times
#
# Between its sliced MLPs, a transformer has a LayerNorm, a dropout and a sum. With `Copied` and
# `Summed`, every rank computes these operations for all tokens: all ranks do the same work, and
# every rank keeps the activations for the backward.

# %% [markdown]
# But an all-reduce is a reduce-scatter followed by an all-gather (lab 03). Separate the two: after
# the reduce-scatter, each rank has a *part of the tokens*, which is enough for a LayerNorm. So each
# rank normalises a quarter of the tokens, and the ranks gather all tokens before the next slices
# ([Korthikanti et al. 2022](https://arxiv.org/abs/2205.05198), section 4.2.2).

# %% [markdown]
# ## Your turn: gather and scatter a sequence
#
# The sequence is dim 1 of [batch, sequence, features]. `dist.all_gather` and `dist.reduce_scatter`
# take lists of contiguous tensors.


# %% exercise="Gathered"
class Gathered(torch.autograd.Function):
    """Forward: all ranks' parts of a sequence, side by side along dim 1; all have the same length.

    Backward: this rank's part of the sum of all ranks' gradients. Send no more bytes than this sum
    needs.
    """

    @staticmethod
    def forward(ctx, x):
        # BEGIN SOLUTION
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts, dim=1)
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        parts = gradient.chunk(dist.get_world_size(), dim=1)
        parts = [part.contiguous() for part in parts]
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter(mine, parts)
        return mine
        # END SOLUTION


# %% check="Gathered"
check(Gathered)


# %% exercise="Scattered"
class Scattered(torch.autograd.Function):
    """Forward: this rank's part, along dim 1, of the sum of all ranks' x.

    The number of ranks divides the length of dim 1. Backward: all ranks' parts of the gradient,
    side by side. The forward works like the backward of `Gathered`, and the other way round.
    """

    @staticmethod
    def forward(ctx, x):
        # BEGIN SOLUTION
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size(), dim=1)]
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter(mine, parts)
        return mine
        # END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        # BEGIN SOLUTION
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, gradient)
        return torch.cat(parts, dim=1)
        # END SOLUTION


# %% check="Scattered"
check(Scattered)

# %% [markdown]
# Now we run two blocks of a transformer without attention, in both ways. `enter` is the function
# where slices begin, and `leave` is the function where slices end.


# %%
class Block(nn.Module):
    def __init__(self, enter, leave):
        super().__init__()
        self.enter, self.leave = enter, leave
        self.norm, mlp = nn.LayerNorm(256), SlicedMLP(whole_mlp(), dist.get_rank(), 4)
        self.up, self.down, self.bias = mlp.up, mlp.down, mlp.bias

    def forward(self, x):
        hidden = nn.functional.gelu(self.up(self.enter.apply(self.norm(x))))
        return x + self.leave.apply(self.down(hidden)) + self.bias


# %%
def two_blocks(enter, leave, in_parts):
    x = some_tokens()
    x = x.chunk(4, dim=1)[dist.get_rank()].clone() if in_parts else x
    x.requires_grad_()
    blocks = nn.Sequential(Block(enter, leave), Block(enter, leave))
    blocks(x).square().mean().backward()


# %% [markdown]
# **Predict:** which of the two ways sends more bytes? In which way does a rank hold more
# activations, and how many times as many?

# %%
whole = cluster.run(two_blocks, Copied, Summed, False)
parts = cluster.run(two_blocks, Gathered, Scattered, True)
for about, run in (("whole", whole), ("parts", parts)):
    print(f"{about}: {megabytes(run):.2f} MB sent by each rank")
    if held := [level.of("activations") for level in run.trace.memory.get(0, ())]:
        print(f"       {max(held) / 1e6:.2f} MB of activations at most")

# %% [markdown]
# **Notice:** both ways send exactly as many bytes, and with parts of the tokens, ranks hold
# fewer activations. But a LayerNorm's own weights now see only a part of the tokens. So each rank
# has only a part of their gradients, and the ranks have to add up the parts.

# %% [markdown]
# ## The norm of the whole gradient
#
# A training often clips gradients: if their norm is above 1, it divides all gradients by the norm.
# This norm is taken over the gradients of the *whole* model. Each rank has slices of some parameters,
# and the other parameters whole.
#
# **Predict:** a rank takes the norm of all its own gradients. Which norm does the rank find? Which
# norm do the ranks find if they add up the squares of all ranks?

# %% [markdown]
# ## Your turn: one number that travels


# %% exercise="global_norm"
def global_norm(parameters, sliced) -> float:
    """Return the 2-norm of the whole model's gradient, the same on every rank.

    `sliced(p)` is True if p is a slice: then each rank has a different part. Every rank has all
    other parameters whole, with the same gradient. A gradient may be None. One number travels.
    """
    # BEGIN SOLUTION
    of_slices, of_whole = torch.zeros((), dtype=torch.float64), 0.0
    for p in parameters:
        if p.grad is not None:
            square = p.grad.double().square().sum()
            if sliced(p):
                of_slices += square
            else:
                of_whole += square.item()
    dist.all_reduce(of_slices)
    return (of_slices.item() + of_whole) ** 0.5
    # END SOLUTION


# %% check="global_norm"
check(global_norm)

# %% [markdown]
# The next run takes the norm of the sliced MLP, where only `bias` is whole on every rank, in three
# ways: each rank alone, the squares of all ranks added, and your function.


# %%
def norms():
    x, mlp = some_tokens(), SlicedMLP(whole_mlp(), dist.get_rank(), 4)
    (100 * mlp(x).square().mean()).backward()
    own = torch.stack([p.grad.norm() for p in mlp.parameters()]).norm()
    summed = own.square()
    dist.all_reduce(summed)
    right = global_norm(mlp.parameters(), lambda p: p is not mlp.bias)
    return own.item(), summed.sqrt().item(), right


# %%
twin = whole_mlp()
(100 * twin(some_tokens()).square().mean()).backward()
whole_norm = torch.stack([p.grad.norm() for p in twin.parameters()]).norm().item()
for rank, found in enumerate(cluster.run(norms).results):
    if found is not None:
        print("rank {}: alone {:.3f}, all summed {:.3f}, yours {:.3f}".format(rank, *found))
print(f"one process: {whole_norm:.3f}")

# %% [markdown]
# **Notice:** with a norm of its own, each rank would divide by a different number, and
# `bias` would no longer be equal on all ranks. The sum of all squares counts `bias` four times. The
# error is small here, but large in a model with whole embeddings on every rank.

# %% [markdown]
# ## The same in torch
#
# torch cuts a model in the same way, layer by layer: `ColwiseParallel` and `RowwiseParallel`. Each
# parameter then is a **DTensor**, a tensor that knows its **placement**, the way in which ranks hold
# the tensor: `Shard(dim)`, `Replicate()`, or `Partial()`, a sum whose parts still have to be added.
#
# **Predict:** where in your MLP is each of the three placements? How many megabytes will a rank
# send?


# %%
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def torchs():
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    mlp = parallelize_module(whole_mlp(), init_device_mesh("cpu", (4,)), plan)
    with CommDebugMode() as counted:  # torch counts its collectives
        y = mlp(some_tokens().requires_grad_())
        y.square().mean().backward()
    placed = {name: str(p.placements[0]) for name, p in mlp.named_parameters()}
    counts = {str(name): times for name, times in counted.get_comm_counts().items()}
    return y.detach().clone(), placed, counts


# %%
run = cluster.run(torchs)
print(run.traffic.table())
print(f"by its all-reduces each rank sends {megabytes(run):.2f} MB")
if run.results[0] is not None:  # None under torchrun with too few ranks
    y, placed, counts = run.results[0]
    print("torch's own count:", counts)
    print("as one process:", torch.allclose(y, whole_mlp()(some_tokens()), atol=1e-5))
    for name, placement in placed.items():
        print(f"{name:10} {placement}")

# %% [markdown]
# **Notice:** torch makes the same cuts and the same two all-reduces; the broadcast and the
# scatters hand out the weights from rank 0, once. $W_1$ is sharded along dim 0 of `weight`, that is,
# by columns of $W_1$; the second bias is replicated. Inside the model, the second layer's output is
# `Partial` for a moment: your `Summed` gets the same parts.

# %% [markdown]
# An image can be a `DTensor` as well, sharded along its rows. Then torch itself has to run the
# convolution on the strips.
#
# **Predict:** which messages will torch send? Which shape does the result have?


# %%
@torch.no_grad()
def torchs_strips():
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    mesh = init_device_mesh("cpu", (4,))
    (convolution, *_), x = image()
    convolution = distribute_module(convolution, mesh)
    y = convolution(distribute_tensor(x, mesh, [Shard(2)]))
    return str(y.placements[0]), tuple(y.full_tensor().shape)


# %%
run = cluster.run(torchs_strips)
print(run.traffic.table())
if run.results[0] is not None:  # None under torchrun with too few ranks
    placed, shape = run.results[0]
    (convolution, *_), x = image()
    print(f"torch: {placed}, {shape}; one process: {tuple(convolution(x).shape)}")

# %% [markdown]
# **Is the result right?** torch raised no error: how would you have found a mistake?
#
# <details><summary>An answer, for torch 2.13</summary>
#
# No. The broadcasts and the scatter hand out weights and image; then no rank asks a neighbour for a
# row. Each rank has convolved its own strip, and calls this strip the whole result (`Replicate`).
# Before you trust a library, look at the shape of the result, the result of one process, and the
# messages.
#
# </details>

# %% [markdown]
# ## Optional: attention, a few heads each
#
# A **head** is a part of attention with its own queries, keys and values. Heads do not need each
# other, so attention has natural slices: a rank takes some heads. The rank holds the rows of
# `in_proj_weight` that make the queries, keys and values of these heads, and the columns of
# `out_proj.weight` that use the output of these heads. The next cell computes the heads:


# %% tags=["answers"]
def attend(qkv, head_dim):
    """Return the outputs of heads, side by side. `qkv` has all queries, then keys, then values."""
    q, k, v = qkv.unflatten(-1, (3, -1, head_dim)).permute(2, 0, 3, 1, 4)
    y = nn.functional.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).flatten(2)


# %% [markdown]
# `nn.MultiheadAttention` keeps three weights in one: `in_proj_weight` has the rows of all queries,
# then the rows of all keys, then the rows of all values. Head 0 has the first `head_dim` rows of
# each of the three.
#
# **Predict:** which tensor travels, and how many bytes does this tensor have?


# %% exercise="SlicedAttention"
class SlicedAttention(nn.Module):
    """This rank's heads of an `nn.MultiheadAttention`; every rank returns the output of all heads.

    A rank has the heads in its part of `tensor_split`, at least one head, and holds copies of the
    weights for these heads. Every rank has the whole bias of `out_proj`. Queries, keys and values
    are all computed from x, [batch, token, feature]. All ranks have the same x and the same
    gradient of x. Only two tensors travel: the output, and the gradient of x.
    """

    def __init__(self, attention, rank, world_size):
        super().__init__()
        # BEGIN SOLUTION
        heads, self.head_dim = attention.num_heads, attention.head_dim
        mine = torch.arange(heads).tensor_split(world_size)[rank]
        columns = torch.arange(heads * self.head_dim).view(heads, -1)[mine].flatten()
        rows = torch.cat([columns + i * heads * self.head_dim for i in range(3)])
        self.qkv = linear(attention.in_proj_weight[rows], attention.in_proj_bias[rows])
        self.out = linear(attention.out_proj.weight[:, columns])
        self.bias = nn.Parameter(attention.out_proj.bias.detach().clone())
        # END SOLUTION

    def forward(self, x):
        # BEGIN SOLUTION
        heads = attend(self.qkv(Copied.apply(x)), self.head_dim)
        return Summed.apply(self.out(heads)) + self.bias
        # END SOLUTION


# %% check="SlicedAttention"
check(SlicedAttention)


# %%
def whole_attention():
    torch.manual_seed(3)
    return nn.MultiheadAttention(256, 8, batch_first=True)


@torch.no_grad()
def by_heads():
    return SlicedAttention(whole_attention(), dist.get_rank(), 4)(some_tokens())


# %%
run = cluster.run(by_heads)
x = some_tokens()
as_one_process(run, whole_attention()(x, x, x)[0])
print(run.traffic.table())

# %% [markdown]
# **Notice:** the forward again has a single all-reduce, of the output. A transformer layer
# of attention and MLP has two all-reduces in the forward and two in the backward.

# %% [markdown]
# ## The way out
#
# The script below trains the same MLP in plain torch. `parallelize_module` uses all three placements:
# `Shard`, `Replicate` and `Partial`.
#
# ```python
# import torch, torch.distributed as dist
# from torch import nn
# from torch.distributed.device_mesh import init_device_mesh
# from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
#
# dist.init_process_group("gloo")
# mesh = init_device_mesh("cpu", (dist.get_world_size(),))
# torch.manual_seed(0)
# mlp = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
# parallelize_module(mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
# optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
# for step in range(4):
#     optimizer.zero_grad()
#     loss = mlp(torch.ones(4, 128, 256)).square().mean()
#     loss.backward()
#     optimizer.step()
#     print("rank", dist.get_rank(), "step", step, loss.item())
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - cut an MLP by columns, then by rows, so that one sum travels;
# - found the batch at which slices and replicas send equally many bytes;
# - given image strips a halo, and the halo's gradient back to the lenders;
# - taken an all-reduce apart, to hold fewer activations without sending more bytes;
# - measured the norm of a gradient that no rank holds whole.
#
# **Next:** can each rank compute with whole layers, but keep a part of each?

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 12_slices.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
