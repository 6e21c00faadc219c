# ---
# jupyter:
#   ddpkit:
#     builds: minibatches, an SGD step with momentum, gradient accumulation
#     minutes: 40
#     needs: lab 00, gradients
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
# # 01 · SGD, the work to be shared
#
# **You will build** stochastic gradient descent on real data: the minibatches, the step with
# momentum, and a gradient that is summed up from pieces of a batch. Later, many ranks will share
# these pieces.
#
# **You need** lab 00 and a little calculus. No GPU and no network. About 40 minutes.

# %%
import torch, matplotlib.pyplot as plt
from ddpkit import Cluster, beside, check, show

# %% [markdown]
# ## The data
#
# The data are 1,797 images of handwritten digits, with 8 × 8 pixels each. Each image is a row of 64
# numbers between 0 and 1, and each label says which digit the image shows.

# %%
from ddpkit.data import load_digits

x, y = map(torch.from_numpy, load_digits())
print("images", tuple(x.shape), x.dtype, " labels", tuple(y.shape), y.dtype)

# %%
plt.style.use("ddpkit.view.plain")
fig, axes = plt.subplots(1, 10, figsize=(9, 1.3))
for ax, image, label in zip(axes, x, y):
    ax.imshow(image.reshape(8, 8), cmap="gray_r")
    ax.set_title(int(label))
    ax.axis("off")
plt.show()

# %% [markdown]
# ## The model and its loss
#
# The model is the simplest classifier: it has a weight for each pixel and digit, and a bias for each
# digit. The classifier turns an image into 10 scores; the digit with the highest score wins. The
# **loss** of one image is $-\log p$, where $p$ is the probability that the model gives to the right
# digit. We want the mean loss over all images to be small.


# %%
def new_parameters():
    return [torch.zeros(64, 10, requires_grad=True), torch.zeros(10, requires_grad=True)]


def loss_of(parameters, x, y):
    weight, bias = parameters
    return torch.nn.functional.cross_entropy(x @ weight + bias, y)  # the mean over the images


# %% [markdown]
# **Predict:** all parameters are 0, so the model gives each of the ten digits the probability 1/10.
# What is the model's loss? (Write a number, with one or two decimals, in place of the dots.)

# %% guess="first_loss"
first_loss = 2.30  # your prediction

# %%
parameters = new_parameters()
beside(first_loss, loss_of(parameters, x, y).item())

# %% [markdown]
# The loss is $-\log(1/10) = \log 10 \approx 2.30$. Remember this number: a new classifier of ten
# digits whose first loss is far from 2.30 has a bug, or was trained before.

# %% [markdown]
# ## Down the gradient
#
# The gradient says for each parameter how the loss grows with this parameter. In one step we subtract
# a small multiple of the gradient $g$ from the parameters $p$. The factor is the **learning rate**
# $\eta$:
#
# $$p \leftarrow p - \eta \, g$$


# %%
def descend(learning_rate, steps):
    parameters, losses = new_parameters(), []
    for _ in range(steps):
        loss = loss_of(parameters, x, y)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():  # the step itself is not to be differentiated
            for p, g in zip(parameters, gradients):
                p -= learning_rate * g
    return losses


# %% [markdown]
# **Predict:** after 20 steps, which learning rate has the lowest loss: 0.01, 1 or 100? And which
# shape does the curve for the learning rate 100 have?

# %%
plt.figure(figsize=(6, 3))
for rate, style in ((0.01, "-"), (1, "--"), (100, ":")):
    losses = descend(rate, steps=20)
    plt.semilogy(losses, style, label=f"learning rate {rate}")
    print(f"learning rate {rate:4}: highest loss {max(losses):5.1f}, last {losses[-1]:.2f}")
plt.xlabel("step"), plt.ylabel("loss"), plt.legend()
plt.show()

# %% [markdown]
# **Notice:** with a learning rate that is too small, the loss falls slowly. With a learning
# rate that is too large, a step jumps right over the valley and lands higher than before, again and
# again. A gradient is good advice only near the point at which we computed the gradient.

# %% [markdown]
# ## Your turn: minibatches
#
# One step on all 1,797 images is a lot of work for one small move. A **minibatch** is a few images
# drawn at random; its gradient points roughly in the same direction as the gradient of all images. An
# **epoch** uses every image once.
#
# **Predict:** how many steps are in an epoch with minibatches of 64 images? How large is the last
# minibatch?


# %% exercise="minibatches"
def minibatches(n: int, batch_size: int, seed: int) -> list[torch.Tensor]:
    """Shuffle the numbers 0 to n - 1 and cut them into batches: a list or tuple of int64 tensors.

    Every batch has `batch_size` numbers; the last batch has the rest. The same seed gives the
    same batches, a new seed gives new batches. Leave torch's global seed alone: make a
    torch.Generator of your own.
    """
    # BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    return list(order.split(batch_size))
    # END SOLUTION


# %% check="minibatches"
check(minibatches)

# %% [markdown]
# <details><summary>An answer</summary>
#
# 29 steps: 28 minibatches of 64 images make 1,792 images, and the last minibatch has the 5 images
# that are left.
#
# </details>

# %% [markdown]
# ## How noisy is a minibatch?
#
# Take many minibatches of one size, and measure how far their gradients are from the gradient of all
# images, on average. This mean distance is the noise.
#
# **Predict:** if the minibatch is four times as large, to how many per cent does the noise shrink?

# %% guess="per_cent"
per_cent = 50  # your prediction, in per cent of the noise with the smaller minibatch


# %%
def noise(batch_size):
    full = torch.autograd.grad(loss_of(parameters, x, y), parameters)[0]
    batches = [b for seed in range(200) for b in minibatches(len(x), batch_size, seed)[:1]]
    parts = [torch.autograd.grad(loss_of(parameters, x[b], y[b]), parameters)[0] for b in batches]
    return torch.stack([(part - full).norm() for part in parts]).mean().item()


sizes = [1, 4, 16, 64, 256]
noises = [noise(size) for size in sizes]

# %%
plt.figure(figsize=(6, 3))
plt.loglog(sizes, noises, "o-")
plt.xticks(sizes, sizes), plt.xlabel("images in the minibatch"), plt.ylabel("noise")
plt.show()
for small, large, a, b in zip(sizes, sizes[1:], noises, noises[1:]):
    print(f"from {small:2} to {large:3} images the noise shrinks to {b / a:.0%}")
beside(per_cent, 100 * noises[2] / noises[1], "per cent, from 4 to 16 images")

# %% [markdown]
# **Notice:** with four times as many images, the noise is half as large: with $B$ images,
# the noise falls as $1/\sqrt{B}$. (The last point lies even lower, because 256 images are a good
# part of all 1,797 images.) So small batches give cheap progress. Large batches soon give little for
# their price: four times the work for half the noise. [Goyal and
# others](https://arxiv.org/abs/1706.02677) show how large a batch can be.

# %% [markdown]
# ## Your turn: the step
#
# With **momentum** $\mu$, the step follows a running sum of gradients, the *velocity* $v$:
#
# $$v \leftarrow \mu v + g, \qquad p \leftarrow p - \eta \, v$$
#
# At the first step, $v$ is just the gradient.
# [`torch.optim.SGD`](https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html) follows the
# same rule.


# %% exercise="sgd_step"
def sgd_step(parameters, gradients, lr, momentum=0.0, velocities=None):
    """Take one step of SGD: change the parameters in place, and leave the gradients unchanged.

    The parameters stay in the same memory. `velocities` is the return value of the previous step,
    or None at the first step. Returns the new velocities: a list or tuple of tensors, one for each
    parameter.
    """
    # BEGIN SOLUTION
    if velocities is None:
        velocities = [torch.zeros_like(g) for g in gradients]
    velocities = [momentum * v + g for v, g in zip(velocities, gradients)]
    with torch.no_grad():
        for p, v in zip(parameters, velocities):
            p -= lr * v
    return velocities
    # END SOLUTION


# %% check="sgd_step"
check(sgd_step)

# %% [markdown]
# Now put the minibatches and the step together.
#
# **Predict:** after 5 epochs with minibatches of 64 images, will the loss be lower than after 5 steps
# on all images? Both trainings look at every image five times.


# %%
def train(batch_size, epochs, lr=0.5, momentum=0.9):
    parameters, velocities = new_parameters(), None
    for epoch in range(epochs):
        for batch in minibatches(len(x), batch_size, seed=epoch):
            loss = loss_of(parameters, x[batch], y[batch])
            gradients = torch.autograd.grad(loss, parameters)
            velocities = sgd_step(parameters, gradients, lr, momentum, velocities)
    return parameters


# %%
for batch_size in (len(x), 64):
    weight, bias = trained = train(batch_size, epochs=5)
    right = ((x @ weight + bias).argmax(1) == y).float().mean().item()
    loss = loss_of(trained, x, y).item()
    print(f"minibatches of {batch_size:4}: loss {loss:.2f}, {right:.0%} of the digits right")

# %% [markdown]
# **Notice:** with minibatches, the same work makes many more steps, and the loss is lower.
# This is why training uses SGD. But the many steps also make SGD hard to spread over many machines:
# each step is small, and the steps come one after the other.

# %% [markdown]
# **In words:** both trainings have looked at every image five times. Why is the loss of one training so much lower? Use the two losses that your cell has printed.

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Your turn: a batch in pieces
#
# Suppose that a batch does not fit into memory. Cut the batch into *micro-batches*, and compute the
# gradient of the batch from the gradients of the micro-batches.
#
# **Predict:** a batch of 64 images is cut into micro-batches of 48 and 16. Is the gradient of the
# batch the mean of the two gradients?


# %% exercise="accumulate"
def accumulate(loss, parameters, micro_batches):
    """Return the gradients of the mean loss over all images of all micro-batches.

    The gradients are a list or tuple of tensors. `loss(x, y)` is the mean loss over the images x.
    `micro_batches` is a list of (x, y); the lengths may differ. Each micro-batch goes through the
    model whole and alone, and at most two graphs are in memory, because the whole batch does not
    fit. Old values of .grad do not count, and the parameters stay unchanged.
    """
    # BEGIN SOLUTION
    images = sum(len(y) for _, y in micro_batches)
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in micro_batches:
        gradients = torch.autograd.grad(loss(x, y), parameters)
        for t, g in zip(total, gradients):
            t += g * (len(y) / images)
    return total
    # END SOLUTION


# %% check="accumulate"
check(accumulate)

# %% [markdown]
# <details><summary>An answer</summary>
#
# No. The gradient of 64 images is $\frac{48}{64} g_1 + \frac{16}{64} g_2$: each part is weighted by
# its length. The plain mean would give each image of the short part three times the weight of an
# image of the long part.
#
# </details>

# %% [markdown]
# **Notice:** each micro-batch could have a rank of its own, which computes the gradient of
# the micro-batch. The training needs only a gradient and a length from each rank.
# This is *data parallelism*: split the batch, and add up the gradients.

# %% [markdown]
# ## One step after the other
#
# Why not give each rank a *step* of its own? Here one rank trains a larger model for three steps.
# `machine=` makes this rank as fast as one core of a laptop. ddpkit counts the rank's operations and
# does not time them, so the picture is the same on every computer, busy or not.
#
# **Predict:** which part of a step takes longest: forward, backward, or the optimizer?


# %%
def three_steps():
    from torch import nn

    model = nn.Sequential(
        nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in minibatches(len(x), 256, seed=0)[:3]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()


show(Cluster(1, machine="laptop core").run(three_steps))

# %% [markdown]
# **Notice:** backward takes about twice as long as forward. For each weight, forward
# computes one matrix product, and backward computes two: one for the gradient of the weight, and one
# for the gradient that goes on to the previous layer.

# %% [markdown]
# The steps form a chain. Step $t$ needs the parameters that step $t - 1$ has made; within a step,
# backward needs the forward, and the optimizer needs the gradients. So steps cannot run side by side
# unless the method changes.
#
# But inside a step, the gradient is a sum over images, and many ranks can share a sum.

# %% [markdown]
# ## The way out
#
# The script below runs SGD with torch's own classes. Save the script in a file `sgd.py`, and run
# `python sgd.py`:
#
# ```python
# import torch
# from torch.utils.data import DataLoader, TensorDataset
#
# torch.manual_seed(0)
# x = torch.randn(512, 8)
# data = TensorDataset(x, x.sum(1, keepdim=True))
# model = torch.nn.Linear(8, 1)
# optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
# for epoch in range(5):
#     for inputs, targets in DataLoader(data, batch_size=32, shuffle=True):
#         optimizer.zero_grad()
#         loss = torch.nn.functional.mse_loss(model(inputs), targets)
#         loss.backward()
#         optimizer.step()
#     print(f"epoch {epoch}: loss {loss.item():.4f}")
# ```

# %% [markdown]
# ## In this lab you have
#
# - followed gradients downhill, and seen a learning rate that is too large;
# - drawn minibatches, and measured that their noise falls with $1/\sqrt{B}$;
# - written SGD with momentum, equal to torch's;
# - made the gradient of a batch from its pieces, weighted by their lengths.
#
# **Next:** lab 02 builds collectives, with which ranks add up their gradients.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 01_sgd.ipynb` in a terminal. This
# command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
