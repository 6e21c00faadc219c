# ---
# jupyter:
#   ddpkit:
#     builds: "distributed SGD: same start, split batch, average in three ways, same step"
#     minutes: 75
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
# **You will build** distributed SGD. Four ranks share the work of each batch and average their
# gradients, in three ways, each faster than the previous way. In the end, the four ranks have the
# parameters that one process would have.
#
# **You need** lab 01, and the cost of an all_reduce (lab 03). No GPU and no network. About 75
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
# 4. Same step: all ranks change their parameters in the same way, so the parameters stay equal. Go
#    back to 2.
#
# Only gradients travel between the ranks.
# ([`DistributedDataParallel`](https://docs.pytorch.org/docs/stable/notes/ddp.html), torch's own
# class, works in this way.)
#
# **Predict:** below, each of four ranks makes a new model. Do all ranks get the same model?

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
# These are four different models, because each rank draws its own random numbers. The mean of the
# gradients of four different models is useless: this mean is the gradient of none of the models. So
# give all ranks the model of one rank.
#
# A model is more than its parameters. A model may have *buffers*, such as the running mean of a
# BatchNorm. Buffers have no gradients, but are part of the model.


# %% exercise="broadcast_parameters"
def broadcast_parameters(module: nn.Module, src: int = 0) -> None:
    """Give every rank the parameters and the buffers that `module` has on rank `src`.

    Includes frozen parameters, and buffers of any dtype, even buffers that state_dict() leaves out.
    Works in place: an optimizer may hold these tensors, and a view of a tensor shows the new
    values. The modules of all ranks have the same structure.
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
# The data are the digits again, in the minibatches of lab 01. The same seed gives the same batches on
# every rank, without any message.

# %%
from ddpkit.data import load_digits

x, y = map(torch.from_numpy, load_digits())
minibatches = carry("minibatches")
sizes = [len(batch) for batch in minibatches(len(x), 256, seed=0)]
print("batches of", sizes)

# %% [markdown]
# ## Your turn: this rank's part
#
# Cut each batch into as many parts as there are ranks, and take the part of this rank.
#
# **Predict:** four ranks share the last batch, of 5 images. How many images does each rank get? If
# the last batch had only 2 images, what should the other two ranks get?


# %% exercise="shard"
def shard(n: int, batch_size: int, epoch: int, rank: int, world_size: int) -> list[torch.Tensor]:
    """Return `rank`'s part of each batch of an epoch: a list or tuple of int64 tensors.

    The list has one part for each step. In each step, the parts of all ranks form one batch:
    `batch_size` of the numbers 0 to n - 1, or the rest in the last batch. The lengths of these
    parts differ by at most 1; the list includes empty parts. An epoch has each number once. Each
    epoch has a shuffled order of its own, which all ranks compute from the number of the epoch.
    Leave torch's global seed alone.
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
# Of 5 images, the ranks get 2, 1, 1 and 1. Of 2 images, the ranks get 1, 1, 0 and 0: two ranks have an empty part. These two ranks take part in the step all the same, because the other ranks wait for them.
#
# </details>

# %%
for rank in range(4):
    lengths = [len(part) for part in shard(len(x), 256, epoch=0, rank=rank, world_size=4)]
    print(f"rank {rank}: {sum(lengths)} images, in parts of {lengths}")

# %% [markdown]
# **Notice:** the ranks agree on their parts without a message, because all ranks computed the
# same permutation. All ranks also have the same number of steps: if a rank had one step less, the
# other ranks would wait for its gradient forever.
#
# (torch's
# [`DistributedSampler`](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler)
# makes all parts equally long in another way: the sampler hands out a few images twice.)

# %% [markdown]
# ## Who has the data?
#
# There are two ways. With a *data server*, rank 0 has all images and sends each rank its part. With
# *partitioned data*, every rank reads its own part.
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
# **Notice:** the server sends all images of the other ranks: in every epoch, $\frac{n-1}{n}$
# of the data leave one machine. If the data grow with the number of ranks, these bytes grow too.
# With partitioned data, the ranks send no images. But then each rank must be able to read every
# image, or always trains on the same part.

# %% [markdown]
# ## The same list on all ranks
#
# Averaging the gradients looks simple: call all_reduce for each gradient. But below, the two ranks
# use different layers of one model.
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
# Each rank has gradients for its own layer only, and the shapes of the two layers differ, so the run
# fails. The failure is lucky: if the two layers had the same shape, the ranks would add up gradients
# of different layers, without any error.
#
# ## Your turn: which gradients?
#
# Each rank must go through the same list of gradients, no matter which layers its own forward has
# used. A missing gradient is replaced by zeros.


# %% exercise="gradients_of"
def gradients_of(module: nn.Module) -> list[torch.Tensor]:
    """Return the gradients that the ranks average: a list or tuple, equally long on all ranks.

    It has one gradient for each parameter that requires a gradient, in the order of
    module.parameters(), which lists a shared (tied) parameter once. If .grad is None, first set
    .grad to zeros. Return the .grad tensors themselves, no copies: a change in place then
    changes the gradient.
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
# This is the most obvious way: for each parameter, rank 0 *gathers* the gradients of all ranks,
# computes the mean, and *scatters* the mean to all ranks. `gradients_of` lists the gradients to
# average.
#
# **Predict:** the gradients of the model have $S$ bytes. How many bytes go into rank 0, and how many
# go out, with $n$ ranks?

# %% [markdown]
# <details><summary>An answer</summary>
#
# $(n - 1) S$ bytes go into rank 0, and $(n - 1) S$ bytes go out.
#
# </details>


# %% exercise="average_by_gather"
def average_by_gather(module: nn.Module) -> None:
    """Replace each gradient by its mean over all ranks: for each parameter, one dist.gather to
    rank 0 and one dist.scatter from rank 0.

    This function and the next two promise: a missing gradient counts as zeros, and is the mean
    afterwards, on every rank. Frozen parameters stay without a gradient. A shared parameter is
    averaged once. Every gradient keeps its dtype.
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
# In the next cells, `six_steps` trains on an emulated network, with the averaging function that it is
# given. With `machine=`, each rank computes at the speed of one laptop core. ddpkit counts the
# operations and does not measure their time, so times are the same on a busy laptop.

# %% [markdown]
# **Predict:** the gradients have $S$ = 1.2 MB, which take 9.7 ms at 1 Gbit/s. The six parameters need
# 12 collectives, each with a latency of 0.2 ms. How many ms do the four ranks communicate in each
# step?

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
# **Notice:** all bytes go through rank 0: $(n - 1)S$ bytes in, and $(n - 1)S$ bytes out
# again. Meanwhile no rank computes, except rank 0, which adds up gradients in the gaps between its
# bars. With twice the ranks, the communication takes about twice as long.

# %% [markdown]
# Rank 0 also needs memory for the gathered gradients. The picture counts this memory as
# *activations*: rank 0 has about 7 MB of activations, and every other rank about 1 MB.

# %% [markdown]
# ## Your turn: one all_reduce for each parameter
#
# An all_reduce as a ring uses the links of all ranks at once: each rank sends $2\,\frac{n-1}{n}\,S$
# bytes, less than $2S$ for any number of ranks.


# %% exercise="average_per_parameter"
def average_per_parameter(module: nn.Module) -> None:
    """Replace each gradient by its mean over all ranks: one dist.all_reduce for each parameter.

    The promises are those of average_by_gather.
    """
    # BEGIN SOLUTION
    for gradient in gradients_of(module):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    # END SOLUTION


# %% check="average_per_parameter"
check(average_per_parameter)

# %% [markdown]
# **Predict:** now each link carries $2 \cdot \frac{3}{4} \cdot S$ bytes; before, the link of rank 0
# carried $2 \cdot 3 \cdot S$ bytes. Is the communication four times as fast? How many ms does it
# take?

# %% guess="per_parameter_ms"
per_parameter_ms = 6 * 6 * 0.2 + 1.5 * 9.7  # your prediction, in ms

# %%
per_parameter = slow.run(six_steps, average_per_parameter)
show(per_parameter, step=4)
beside(per_parameter_ms, communication_ms(per_parameter), "ms")

# %% [markdown]
# **Notice:** there are six all_reduces, one for each weight and each bias. The all_reduces of
# the three biases carry few bytes, but take more than a millisecond each: a ring has $2(n - 1)$
# rounds, and each round costs a latency of 200 µs, even for a short message.

# %% [markdown]
# ## Your turn: one all_reduce for all
#
# Copy all gradients into one long vector, all_reduce the vector, and copy the means back.
#
# A vector has one dtype. If a model has gradients of several dtypes, make one vector for each dtype.
# All ranks must all_reduce these vectors in the same order, and a Python `set` has no order.


# %% exercise="average_flat"
def average_flat(module: nn.Module) -> None:
    """Replace each gradient by its mean over all ranks: one dist.all_reduce for each dtype.

    The promises are those of average_by_gather.
    """
    # BEGIN SOLUTION
    gradients = gradients_of(module)
    for dtype in dict.fromkeys(g.dtype for g in gradients):  # each dtype once, in a fixed order
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
# ## Three ways compared
#
# **Predict:** one all_reduce instead of six saves five times $2(n - 1)$ latencies. How many
# milliseconds does this save here?

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
# Compare the measurements with formulas. Count the latencies $\alpha$ that follow each other, and the
# bytes on the busiest link, in multiples of $S$:
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
# **Notice:** the first change saves bytes on the busiest link, and the second change saves
# latencies. This model has six parameters; a model with hundreds of small parameters would gain more
# from the second change. The rest of a step is the rank's own compute: forward, backward, sums and
# copies.
#
# All three functions compute the same means, up to rounding.

# %% [markdown]
# ## Same step: all together
#
# One problem is left. The last batch has 5 images, and the ranks have 2, 1, 1 and 1 of these images.
#
# **Predict:** is the mean of four mean losses the mean loss over the 5 images?

# %%
model, batch = mlp(), minibatches(len(x), 256, seed=0)[-1]


def mean_loss(part):
    return nn.functional.cross_entropy(model(x[part]), y[part]).item()


losses = [mean_loss(part) for part in batch.tensor_split(4)]
print(f"mean of the 4 means: {sum(losses) / 4:.4f}, mean over {len(batch)}: {mean_loss(batch):.4f}")

# %% [markdown]
# The two numbers differ. A mean of means gives each image of a short part too much weight, as in lab
# 01's `accumulate`.
#
# ## Your turn: train
#
# The averaging divides by the number of ranks. But the sum of the losses must be divided by the
# number of images in the whole batch. With which factor must each rank multiply its loss? A rank does
# not know the lengths of the other parts, so the ranks have to ask each other.


# %% exercise="train"
def train(model: nn.Module, batches, lr: float, momentum: float = 0.0) -> None:
    """Train `model` on all ranks, so that it equals the model of one process with whole batches.

    All ranks start from rank 0's model. `batches` is a generator of this rank's parts (x, y), one
    for each step; take the next part when the previous step is done. A part may be shorter than
    the parts of other ranks, or empty. The loss is the mean cross entropy over all images of the
    whole batch. The step is SGD with momentum (torch.optim.SGD, or your sgd_step of lab 01). The
    model stays in training mode.
    """
    # BEGIN SOLUTION
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        images = torch.tensor(len(y))
        dist.all_reduce(images)  # images of the whole batch
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
# Train on the digits for three epochs: first on four ranks, then on one rank alone, which is one
# process with whole batches.
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
there = [each for each in four if each is not None]  # None under torchrun with too few ranks
apart = [(vector(each) - vector(one)).abs().max() for each in there]
print("farthest from one process, by rank:", [f"{each:.0e}" for each in apart])
right = (one(x).argmax(1) == y).float().mean()
print(f"right after 3 epochs: {right:.0%} of the digits")

# %% [markdown]
# **Notice:** the parameters of the four ranks are equal to the last bit. The parameters of
# one process differ by a few roundings of float32, because the ranks add up the same sum in another
# order. So four ranks are not "about as good" as one process: four ranks do the same training.
#
# (One exception: a BatchNorm computes the mean over the images of its own rank only. For the mean
# over all ranks, torch has
# [`SyncBatchNorm`](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html).)

# %% [markdown]
# ## Where the time goes
#
# Now train on the emulated network.
#
# **Predict:** which share of the communication is hidden behind compute?

# %%
trained = slow.run(train_mlp, epochs=1)
show(trained, step=4)

# %% [markdown]
# **Notice:** no communication is hidden. A step has a forward and a backward, and only then
# the communication. While the network is busy nobody computes, and while the ranks compute the
# network does nothing. All of the communication is *exposed*. (The thin bar at the start of a step
# is the all_reduce that counts the images: 8 bytes, at the cost of $2(n - 1)$ latencies.)

# %% [markdown]
# The next picture shows the whole run: click, then turn the wheel to zoom, drag to move, or point at
# a bar.

# %%
from ddpkit.view import explore

explore(trained)

# %% [markdown]
# ## Does it scale?
#
# **Strong scaling** puts the same batch on more ranks. **Weak scaling** keeps the number of images on
# each rank, so the batch grows with the ranks. The network is now faster, with 10 Gbit/s and 50 µs,
# and there are up to 16 machines, each as fast as one laptop core.


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
    """Return the ms of a step on n ranks with `images` images each; None if the run is skipped."""
    run = Cluster(n, link=LINK, machine="laptop core").run(three_steps, images)
    return run.trace.step(1).duration_ms if run.trace.steps else None


# %% [markdown]
# The predicted time is the measured step of one rank alone, plus the time of lab 03's ring,
# $2(n - 1)\left(\alpha + \frac{S}{n\beta}\right)$.

# %%
from ddpkit.simulate import cost

alone = {images: measure(images, 1) for images in (1024, 512, 256, 128, 64, 32)}
for images, ms in alone.items():
    print(f"{images:5} images on one rank: {ms:4.1f} ms")


def formula(images, n):
    return alone[images] + cost("ring", n, size, LINK) / 1e6


# %% [markdown]
# **Predict:** 16 ranks share 1,024 images. By which factor do the 16 ranks process more images per
# second than one rank? By which factor if each of the 16 ranks has 512 images? Use the numbers above;
# the bandwidth alone gives 1 ms for $S$ bytes.

# %% guess="strong_16"
strong_16 = 30.5 / (3.1 + 30 * (0.05 + 0.96 / 16))  # your prediction: times as fast

# %% guess="weak_16"
weak_16 = 16 * 15.9 / (15.9 + 30 * (0.05 + 0.96 / 16))  # your prediction: times as fast


# %%
def speed_ups(seconds, ranks, strong):
    """Return the images per second, divided by the images per second of one rank."""
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
# **Notice:** strong scaling comes to an end. With more ranks, each rank computes less, but
# the communication does not shrink: for 32 ranks, the line predicts a longer step than for 16.

# %% [markdown]
# Weak scaling goes on: a rank's compute stays the same, each rank sends less than $2S$, and only the
# latencies grow. But the batch grows too, and large batches give less and less for their price (lab
# 01). ([Goyal and others](https://arxiv.org/abs/1706.02677) trained with batches of 8,192 images on
# 256 GPUs.)

# %% [markdown]
# **In words:** 16 ranks with 1,024 images are not 16 times as fast as one rank. How many times as
# fast are they? Explain the lost time: how many ms of a step are compute, and how many ms are
# communication?

# %% [markdown]
# *Your words:*

# %% [markdown]
# The next picture has sliders for the step with 512 images. Start with the values of this lab, then
# make the link slower.
#
# **Predict:** with a link of a tenth of the bandwidth, on how many ranks is a step with a shared
# batch the fastest?

# %%
from ddpkit.view import explore_scaling

step_of_512 = Cluster(2, link=LINK, machine="laptop core").run(three_steps, 512)
explore_scaling(step_of_512, world_size=16)

# %% [markdown]
# ## The way out
#
# torch has a sampler that shares out the data, and a class that averages the gradients; labs 05 and
# 06 build such a class. Save this in a file `train.py`, and run
# `torchrun --nproc-per-node 4 train.py`:
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
# - given all ranks the same start, and each rank its part of every batch;
# - averaged gradients in three ways, and measured the cost of bytes and latencies;
# - trained on four ranks and got the parameters of one process, even with uneven batches;
# - predicted and measured how far the training scales.
#
# **Next:** all communication was exposed. Lab 05 puts gradients into buckets, so that lab 06 can
# send the first buckets while backward still computes.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 04_data_parallel.ipynb` in a
# terminal. This command checks your notebook in the same way as the grader, with other inputs, and
# shows the grader's result.
