# ---
# jupyter:
#   ddpkit:
#     builds: "distributed SGD: same start, split batch, average in three ways, same step"
#     minutes: 70
#     needs: labs 01 and 03
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
# # 04 · Data parallel: one model on many ranks
#
# **You will build** distributed SGD. Four ranks share the work of each batch, average their
# gradients in three ways, each faster than the one before, and end up with the parameters that one
# process would have.
#
# **You need** lab 01, and what an all_reduce costs (lab 03). No GPU and no network. About 70
# minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check, show

# %% [markdown]
# ## The plan
#
# 1. Same start: all ranks have the same parameters.
# 2. Split the batch: each rank computes the gradient of its part.
# 3. Average the gradients.
# 4. Same step: so the ranks have the same parameters again. Back to 2.
#
# Nothing travels but gradients. (So works
# [`DistributedDataParallel`](https://docs.pytorch.org/docs/stable/notes/ddp.html), torch's own class.)
#
# **Predict:** below, each of four ranks makes a new model. Is it the same on all?

# %%
from torch import nn


def mlp():
    hidden = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(512, 10))


# %%
cluster = Cluster(4)


def first_weight():
    return mlp()[0].weight[0, 0].item()


cluster.run(first_weight).results

# %% [markdown]
# ## Your turn: same start
#
# These are four different models: each rank draws its own random numbers. Gradients of four different
# models have no useful mean: it is the gradient of none of them. So give all ranks the model of one.
#
# A model is more than its parameters. It may have *buffers*, such as the running mean of a
# BatchNorm: no gradient, yet part of the model.


# %% exercise="broadcast_parameters"
def broadcast_parameters(module: nn.Module, src: int = 0) -> None:
    """Give every rank the parameters and the buffers that `module` has on rank `src`.

    Frozen parameters too, and buffers of any dtype, also those that state_dict() leaves out. In
    place: an optimizer may hold these very tensors, and a view of one shows the new values. All
    ranks have a module of the same build.
    """
    # BEGIN SOLUTION
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src)
    # END SOLUTION


# %% check="broadcast_parameters"
check(broadcast_parameters)


# %%
def same_first_weight():
    model = mlp()
    broadcast_parameters(model)
    return model[0].weight[0, 0].item()


cluster.run(same_first_weight).results

# %% [markdown]
# ## Split the batch
#
# The digits again, and the minibatches of lab 01: the same seed gives the same batches on every
# rank, and the ranks need not talk about it.

# %%
from ddpkit.data import load_digits

x, y = map(torch.from_numpy, load_digits())
minibatches = carry("minibatches")
sizes = [len(batch) for batch in minibatches(len(x), 256, seed=0)]
print("batches of", sizes)

# %% [markdown]
# ## Your turn: this rank's part
#
# Cut each batch into as many parts as there are ranks, and take your own.
#
# **Predict:** four ranks share the last batch, of 5 images. How many does each get? And if it had
# only 2: what should the other two ranks get?


# %% exercise="shard"
def shard(n: int, batch_size: int, epoch: int, rank: int, world_size: int) -> list[torch.Tensor]:
    """The part of `rank` in each batch of an epoch: a list or tuple of int64 tensors, one a step.

    All ranks' parts of a step together are one batch: `batch_size` of the numbers 0 to n - 1, the
    last one what is left. Their lengths differ by 1 at most; a part may be empty, and is in the
    list all the same. An epoch has each number once, shuffled, and in another order than the next
    epoch; all ranks know it from the number of the epoch.
    """
    # BEGIN SOLUTION
    batches = minibatches(n, batch_size, seed=epoch)
    return [batch.tensor_split(world_size)[rank] for batch in batches]
    # END SOLUTION


# %% check="shard"
check(shard)

# %% [markdown]
# <details><summary>An answer</summary>
#
# Of 5 images the ranks get 2, 1, 1 and 1. Of 2 images they get 1, 1, 0 and 0: two ranks have an empty part. They take part in the step all the same, since the others wait for them.
#
# </details>

# %%
for rank in range(4):
    lengths = [len(part) for part in shard(len(x), 256, epoch=0, rank=rank, world_size=4)]
    print(f"rank {rank}: {sum(lengths)} images, in parts of {lengths}")

# %% [markdown]
# **What to notice:** nobody told the ranks who takes what. They agree because they all computed the
# same permutation. And all have as many steps: a rank that came one step short would leave the
# others waiting for its gradient.
#
# (torch's
# [`DistributedSampler`](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler)
# makes all parts equally long another way: it hands out a few images twice.)

# %% [markdown]
# ## Who has the data?
#
# Two ways. A *data server*: rank 0 has all images and sends each rank its part. Or *partitioned
# data*: every rank reads its part itself.
#
# **Predict:** an image with its label is a row of 65 numbers, 260 bytes. How much does rank 0 send
# in an epoch of 1,797 images?

# %% guess="served_bytes"
served_bytes = 1797 * 260 * 3 / 4  # your prediction, in bytes

# %%
rows = torch.cat([x, y[:, None].float()], dim=1)


def served():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for batch in minibatches(len(rows), 256, seed=0):
        parts = batch.tensor_split(world_size)
        if rank == 0:
            sends = [dist.isend(rows[parts[r]], dst=r) for r in range(1, world_size)]
            for send in sends:
                send.wait()
        else:
            dist.recv(torch.empty(len(parts[rank]), 65), src=0)


# %%
def partitioned():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    return sum(len(rows[part]) for part in shard(len(rows), 256, 0, rank, world_size))


server = cluster.run(served)
print("server:", server.traffic.table(), sep="\n")
run = cluster.run(partitioned)
print("partitioned:", run.traffic.table(), f"images: {run.results}", sep="\n")
beside(served_bytes, server.traffic.sent(0), "bytes")

# %% [markdown]
# **What to notice:** the server sends all that the others compute with: $\frac{n-1}{n}$ of every epoch
# goes out of one machine. If each new rank brings new images, the bytes grow with the ranks. With partitioned data nothing is sent. The price: each rank must be able to read any image,
# or it must always train on the same part of them.

# %% [markdown]
# ## The same list on all ranks
#
# Now the gradients. It looks simple: for each parameter that has one, all_reduce it. But here the
# ranks use different layers of one model.
#
# **Predict:** what happens?


# %%
def two_ways():
    ways = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 2)])
    ways[dist.get_rank()](torch.ones(1)).sum().backward()
    for p in ways.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)


run = Cluster(2).run(two_ways, expect_error=True)

# %% [markdown]
# Each rank has gradients for its own way only, and they do not fit. It could be worse: if the two
# layers had the same shape, the ranks would add up gradients of different layers, and nobody would
# say a word.
#
# ## Your turn: which gradients?
#
# Each rank must go through the same list, whatever its own forward did. A gradient that is missing
# counts as zeros.


# %% exercise="gradients_of"
def gradients_of(module: nn.Module) -> list[torch.Tensor]:
    """The gradients that the ranks average: a list or tuple, equally long on all of them.

    One for each parameter that requires a gradient, in the order of module.parameters(), which
    names a shared (tied) parameter once. Where .grad is None, this makes it zeros first. These are
    the very .grad tensors: who changes one in place has changed the gradient.
    """
    # BEGIN SOLUTION
    parameters = [p for p in module.parameters() if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    return [p.grad for p in parameters]
    # END SOLUTION


# %% check="gradients_of"
check(gradients_of)

# %% [markdown]
# ## Your turn: average, through rank 0
#
# The first way that comes to mind: for each parameter, rank 0 *gathers* the gradients of all
# ranks, takes the mean, and *scatters* it. `gradients_of` says which.
#
# **Predict:** the model's gradients are $S$ bytes. How many go in and out of rank 0, with $n$ ranks?

# %% [markdown]
# <details><summary>An answer</summary>
#
# $(n - 1) S$ bytes go in, and as many go out again.
#
# </details>


# %% exercise="average_by_gather"
def average_by_gather(module: nn.Module) -> None:
    """Make each gradient its mean over all ranks, on all ranks: for each parameter one dist.gather
    to rank 0 and one dist.scatter from it.

    Promised of this and of the next two: a parameter without a gradient counts as zeros, and has
    the mean afterwards, on every rank. Frozen parameters stay without. A shared one is averaged
    once. Every gradient keeps its dtype.
    """
    # BEGIN SOLUTION
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for gradient in gradients_of(module):
        parts = None
        if rank == 0:
            parts = [torch.empty_like(gradient) for _ in range(world_size)]
        dist.gather(gradient, parts, dst=0)
        if rank == 0:
            parts = [sum(parts) / world_size] * world_size
        dist.scatter(gradient, parts, src=0)
    # END SOLUTION


# %% check="average_by_gather"
check(average_by_gather)

# %% [markdown]
# ## What it costs
#
# A few steps of training on an emulated network, with any way to average. `machine=` says how fast a
# rank computes: like one core of a laptop. Its operations are counted, not measured, so a run takes the
# same time whatever else your laptop does.

# %% [markdown]
# **Predict:** the gradients are $S$ = 1.2 MB, for which 1 Gbit/s takes 9.7 ms. The six parameters make
# 12 operations of 0.2 ms latency each. How long do the four ranks communicate in each step?

# %% guess="gather_ms"
gather_ms = 12 * 0.2 + 6 * 9.7  # your prediction, in ms

# %%
slow = Cluster(4, link="1 Gbit/s, 200 us", machine="laptop core")


def communication_ms(run):
    return run.trace.step(4).breakdown()[0].comm_ns / 1e6 if run.trace.steps else None


def six_steps(average):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in shard(len(x), 256, 0, dist.get_rank(), dist.get_world_size())[:6]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        average(model)
        optimizer.step()


# %%
by_gather = slow.run(six_steps, average_by_gather)
show(by_gather, step=4)
beside(gather_ms, communication_ms(by_gather), "ms")

# %% [markdown]
# **What to notice:** everything goes through rank 0: $(n - 1)S$ bytes in, and $(n - 1)S$ bytes out
# again. Meanwhile nobody computes, except rank 0, which adds up in the gaps between its bars. With
# twice the ranks it takes about twice as long.

# %% [markdown]
# Rank 0 also needs room for the gathered gradients. The kit counts this room among the *activations*:
# rank 0 has about 7 MB of activations, every worker about 1 MB.

# %% [markdown]
# ## Your turn: one all_reduce for each parameter
#
# An all_reduce as a ring uses the links of all ranks at once: each sends $2\,\frac{n-1}{n}\,S$, which is
# less than $2S$ for any number of ranks.


# %% exercise="average_per_parameter"
def average_per_parameter(module: nn.Module) -> None:
    """Make each gradient its mean over all ranks: one dist.all_reduce for each parameter.

    It promises what average_by_gather promises.
    """
    # BEGIN SOLUTION
    for gradient in gradients_of(module):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    # END SOLUTION


# %% check="average_per_parameter"
check(average_per_parameter)

# %% [markdown]
# **Predict:** now each link carries $2 \cdot \frac{3}{4} \cdot S$ where rank 0's carried $2 \cdot 3 \cdot S$.
# Is the communication four times as fast? How many ms is it?

# %% guess="per_parameter_ms"
per_parameter_ms = 6 * 6 * 0.2 + 1.5 * 9.7  # your prediction, in ms

# %%
per_parameter = slow.run(six_steps, average_per_parameter)
show(per_parameter, step=4)
beside(per_parameter_ms, communication_ms(per_parameter), "ms")

# %% [markdown]
# **What to notice:** six all_reduces, one for each weight and each bias. The three for the biases carry
# next to nothing, but they take their time: a ring has $2(n - 1)$ rounds, and each round costs a latency
# of 200 µs, however short its message is.

# %% [markdown]
# ## Your turn: one all_reduce for all
#
# Copy all gradients into one long vector, all_reduce that, and copy the means back.
#
# A vector has one dtype. If a model mixes several, take one vector for each dtype. All ranks have to
# take them in the same order, and a Python `set` has no order.


# %% exercise="average_flat"
def average_flat(module: nn.Module) -> None:
    """Make each gradient its mean over all ranks: one dist.all_reduce for all of a dtype.

    It promises what average_by_gather promises.
    """
    # BEGIN SOLUTION
    gradients = gradients_of(module)
    for dtype in dict.fromkeys(g.dtype for g in gradients):  # a set, but in order
        members = [g for g in gradients if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in members])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for g, mean in zip(members, flat.split([g.numel() for g in members])):
            g.copy_(mean.view_as(g))
    # END SOLUTION


# %% check="average_flat"
check(average_flat)

# %% [markdown]
# ## Three rungs of a ladder
#
# **Predict:** one all_reduce instead of six saves five times $2(n - 1)$ latencies. How many
# milliseconds is that here?

# %% guess="saved_ms"
saved_ms = 5 * 6 * 0.2  # your prediction, in ms

# %%
from ddpkit.view import compare

flat = slow.run(six_steps, average_flat)
names = ["gather and scatter", "per parameter", "flat"]
compare(by_gather, per_parameter, flat, labels=names)
if flat.trace.steps:
    beside(saved_ms, communication_ms(per_parameter) - communication_ms(flat), "ms saved")

# %% [markdown]
# What do formulas say of such a network? Count the latencies $\alpha$ that are paid one after the other,
# and what the busiest link carries, in multiples of $S$:
#
# - gather and scatter: $12\,\alpha + 6\,S/\beta$
# - per parameter: $36\,\alpha + 1.5\,S/\beta$
# - flat: $6\,\alpha + 1.5\,S/\beta$

# %%
size = 4 * sum(p.numel() for p in mlp().parameters())  # S, in bytes
alpha, wire = 0.2, size / 125e6 * 1e3  # ms
formulas = [12 * alpha + 6 * wire, 36 * alpha + 1.5 * wire, 6 * alpha + 1.5 * wire]
for name, ms in zip(names, formulas):
    print(f"{name}: {ms:.1f} ms")

# %% [markdown]
# **What to notice:** the first change saves bytes on the busiest link, the second one saves latencies.
# This model has six parameters; one with hundreds of small ones would gain more from the second. The
# rest of a step is what the rank computes itself: forward, backward, sums and copies.
#
# All three make the same means, up to rounding. They differ in the way.

# %% [markdown]
# ## Same step: all together
#
# One thing is left. The last batch has 5 images, and the ranks have 2, 1, 1 and 1 of them.
#
# **Predict:** is the mean of four mean losses the mean loss over the 5 images?

# %%
model, batch = mlp(), minibatches(len(x), 256, seed=0)[-1]


def mean_loss(part):
    return nn.functional.cross_entropy(model(x[part]), y[part]).item()


losses = [mean_loss(part) for part in batch.tensor_split(4)]
print(f"mean of the 4 means: {sum(losses) / 4:.4f}, mean over {len(batch)}: {mean_loss(batch):.4f}")

# %% [markdown]
# It is not. A mean of means gives each image of a short part too much weight, as in lab 01's
# `accumulate`.
#
# ## Your turn: train
#
# The averaging divides by the number of ranks. But a loss has to be divided by the number of images in
# the whole batch. Which factor makes it right? A rank does not know how long the other parts are, so
# the ranks have to ask each other.


# %% exercise="train"
def train(model: nn.Module, batches, lr: float, momentum: float = 0.0) -> None:
    """Train `model` on all ranks: after each step it is what one process makes of whole batches.

    It starts from rank 0's model. `batches` is a generator of this rank's parts, (x, y), one for
    each step; take the next one when the step before is done. A part may be shorter than another
    rank's, or empty. The loss is the cross entropy, its mean over all images of the whole batch.
    The step is SGD with momentum (torch.optim.SGD, or yours of lab 01). The model stays in the
    mode for training.
    """
    # BEGIN SOLUTION
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        images = torch.tensor(len(y))
        dist.all_reduce(images)  # of the whole batch
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
        optimizer.zero_grad()
        (loss * dist.get_world_size() / images).backward()
        average_flat(model)
        optimizer.step()
    # END SOLUTION


# %% check="train"
check(train)

# %% [markdown]
# ## One process or four
#
# Train on the digits for three epochs: on four ranks, and on one rank alone, which is one process
# with whole batches.
#
# **Predict:** how far apart are the parameters in the end?


# %%
def my_batches(batch_size, epochs):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for epoch in range(epochs):
        for part in shard(len(x), batch_size, epoch, rank, world_size):
            yield x[part], y[part]


def train_mlp(epochs):
    model = mlp()
    train(model, my_batches(256, epochs), lr=0.1, momentum=0.9)
    return model


# %%
def vector(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


four = cluster.run(train_mlp, epochs=3).results
one = Cluster(1).run(train_mlp, epochs=3).results[0]
print(f"parameters from {vector(one).min():.2f} to {vector(one).max():.2f}")
there = [each for each in four if each is not None]  # a job may have fewer ranks
apart = [(vector(each) - vector(one)).abs().max() for each in there]
print("farthest from one process, by rank:", [f"{each:.0e}" for each in apart])
right = (one(x).argmax(1) == y).float().mean()
print(f"right after 3 epochs: {right:.0%} of the digits")

# %% [markdown]
# **What to notice:** the four ranks agree to the last bit. From one process they differ by a few
# roundings of float32: the same sum, added up in another order. So four ranks are not "about as good" as
# one process: they do what it does.
#
# (One exception: a BatchNorm takes its mean over the images it sees, and a rank sees its part only.
# For that torch has
# [`SyncBatchNorm`](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html).)

# %% [markdown]
# ## Where the time goes
#
# Now on the network.
#
# **Predict:** which share of the communication is hidden behind compute?

# %%
trained = slow.run(train_mlp, epochs=1)
show(trained, step=4)

# %% [markdown]
# **What to notice:** none. A step is forward, backward, and only then the network. While the network is
# busy nobody computes, and while the ranks compute the network does nothing. All of the communication
# is *exposed*. (The thin bar at the start of a step counts the images. It is 8 bytes, and costs
# $2(n - 1)$ latencies.)
#
# The whole run, to look into: turn the wheel to zoom (click first), drag to move, point at a bar.

# %%
from ddpkit.view import explore

explore(trained)

# %% [markdown]
# ## Does it scale?
#
# **Strong scaling**: the same batch on more ranks. **Weak scaling**: as many images for each rank, so the
# batch grows with the ranks. Now the network is a faster one, 10 Gbit/s and 50 µs, and there are up to
# 16 machines, each like one core of a laptop.


# %%
def three_steps(images):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[:images]), y[:images]).backward()
        average_flat(model)
        optimizer.step()


LINK = "10 Gbit/s, 50 us"


def measure(images, n):
    """A step on n ranks with so many images each, in ms; None where a job has fewer ranks."""
    run = Cluster(n, link=LINK, machine="laptop core").run(three_steps, images)
    return run.trace.step(1).duration_ms if run.trace.steps else None


# %% [markdown]
# The prediction: the step of one rank alone, and then the ring of lab 03,
# $2(n - 1)\left(\alpha + \frac{S}{n\beta}\right)$.

# %%
from ddpkit.simulate import cost

alone = {images: measure(images, 1) for images in (1024, 512, 256, 128, 64, 32)}
for images, ms in alone.items():
    print(f"{images:5} images on one rank: {ms:4.1f} ms")


def formula(images, n):
    return alone[images] + cost("ring", n, size, LINK) / 1e6


# %% [markdown]
# **Predict:** 1,024 images on 16 ranks instead of 1: how many times as many images a second? And if each
# of the 16 has 512 images? Use the numbers above, and that the wire alone takes 1 ms for $S$.

# %% guess="strong_16"
strong_16 = 30.5 / (3.1 + 30 * (0.05 + 0.96 / 16))  # your prediction: times as fast

# %% guess="weak_16"
weak_16 = 16 * 15.9 / (15.9 + 30 * (0.05 + 0.96 / 16))  # your prediction: times as fast


# %%
def speed_ups(seconds, ranks, strong):
    """Images per second, in multiples of those of one rank."""
    images = {n: 1024 // n if strong else 512 for n in ranks}
    times = {n: seconds(images[n], n) for n in ranks}
    rate = {n: n * images[n] / t for n, t in times.items() if t is not None}
    return {n: each / rate[1] for n, each in rate.items()}


measured = {strong: speed_ups(measure, (1, 2, 4, 8, 16), strong) for strong in (True, False)}
predicted = {strong: speed_ups(formula, (1, 2, 4, 8, 16, 32), strong) for strong in (True, False)}
beside(strong_16, measured[True].get(16), "times as fast, 1,024 images in all")
beside(weak_16, measured[False].get(16), "times as fast, 512 images a rank")

# %%
import matplotlib.pyplot as plt

plt.style.use("ddpkit.view.plain")
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
titles = {True: "strong: 1,024 images in all", False: "weak: 512 images a rank"}
for ax, (strong, title) in zip(axes, titles.items()):
    line, dots = predicted[strong], measured[strong]
    ax.plot(line.keys(), line.keys(), ":", color="grey", label="ideal")
    ax.plot(line.keys(), line.values(), "-", label="predicted")
    ax.plot(dots.keys(), dots.values(), "o", label="measured")
    ax.set_xscale("log", base=2), ax.set_yscale("log", base=2)
    ax.set_xticks([*line], [*line]), ax.set_yticks([*line], [*line])
    ax.set(title=title, xlabel="ranks", ylabel="times as fast as one rank")
axes[0].legend()
plt.show()

# %%
for n in measured[True]:
    texts = [f"{measured[s][n]:5.2f} (predicted {predicted[s][n]:5.2f})" for s in (True, False)]
    print(f"n = {n:2}: strong {texts[0]}, weak {texts[1]}")

# %% [markdown]
# **What to notice:** strong scaling comes to an end. A rank has less and less to compute, the
# communication does not shrink, and with 32 ranks the latencies make the step longer again. Weak scaling
# goes on: compute stays, each rank sends less than $2S$, only the latencies grow. But the batch grows
# too, and lab 01 showed what large batches give: less and less for their price.
# ([Goyal and others](https://arxiv.org/abs/1706.02677) trained with batches of 8,192 images on 256 GPUs.)

# %% [markdown]
# **In words:** 1,024 images on 16 ranks are not 16 times as fast. How many times is it, and where has the rest gone? Say how many ms of a step are compute and how many communication.

# %% [markdown]
# *Your words:*

# %% [markdown]
# To play with: the step with 512 images, on any network and any number of ranks. Start where you are,
# then make the link slower.
#
# **Predict:** with a link of a tenth of the speed, on how many ranks is a shared batch fastest?

# %%
from ddpkit.view import explore_scaling

step_of_512 = Cluster(2, link=LINK, machine="laptop core").run(three_steps, 512)
explore_scaling(step_of_512, world_size=16)

# %% [markdown]
# ## The way out
#
# Torch has a sampler that shares out the data, and a class that averages: labs 05 and 06 build it.
# In a file `train.py`, for `torchrun --nproc-per-node 4 train.py`:
#
# ```python
# import torch, torch.distributed as dist
# from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
#
# dist.init_process_group("gloo")
# data = TensorDataset(x := torch.randn(512, 8), x.sum(1, keepdim=True))
# model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
# optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
# sampler = DistributedSampler(data)
# for epoch in range(3):
#     sampler.set_epoch(epoch)  # another order in each epoch
#     for inputs, targets in DataLoader(data, batch_size=16, sampler=sampler):
#         optimizer.zero_grad()
#         torch.nn.functional.mse_loss(model(inputs), targets).backward()
#         optimizer.step()
# print("rank", dist.get_rank(), [p.sum().item() for p in model.parameters()])
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - given all ranks the same start, and each its part of every batch;
# - averaged gradients in three ways, and measured what bytes and latencies cost;
# - trained on four ranks to the parameters of one process, uneven batches included;
# - seen how far it scales, and predicted it.
#
# **Next:** all communication was exposed. Lab 05 cuts the gradients into buckets, so that lab 06 can
# send the first of them while backward still computes the others.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 04_data_parallel.ipynb` in a terminal. It
# goes the grader's way, with inputs of its own, and says what the grader will.
