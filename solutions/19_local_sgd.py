# ---
# jupyter:
#   ddpkit:
#     builds: "training over slow links: an outer optimizer, fragments, bytes, joining and leaving replicas"
#     minutes: 90
#     needs: labs 02, 04, 07 and 10
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
# # 19 · Local SGD
#
# **You will build** a training over slow links: an outer optimizer, fragments that travel while the
# ranks compute, exchanges with one byte for each number, and a training that replicas leave and
# join.
#
# **You need** labs 02, 04, 07 and 10. About 90 minutes. Slow sites, and sites that leave and come
# back, may wait for another day.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, check, show

# %%
import contextlib, itertools, math, time
from datetime import timedelta

from torch import nn
from ddpkit.data import load_digits

# %% [markdown]
# ## Four sites
#
# Sometimes no single place has enough machines. A **site** is a replica behind a slow link. Here
# four sites have links of 1 Gbit/s, with 20 ms from each site to each other site. The model is
# small, and a site computes only 1 GFLOP/s.

# %%
sites = Cluster(4, machine="1 GFLOP/s", link="1 Gbit/s, 20 ms")

# %% [markdown]
# The model has six linear layers with 75,658 parameters, which take 302,632 B.


# %%
def net(seed=0):
    sizes = [64, 128, 128, 128, 128, 128, 10]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pairs = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*itertools.chain(*pairs))[:-1]


# %% [markdown]
# The data are the digits of lab 01: 1,400 images to learn from, and 397 held out. The sites share
# out the images in one of two ways. With the *same digits*, a site has every fourth image. With
# digits of its *own*, a site has a quarter of the images sorted by digit: two or three of the ten
# digits.


# %%
def data(own=False):
    x, y = map(torch.from_numpy, load_digits())
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    learn, held = order[:1400], order[1400:]
    n, rank = dist.get_world_size(), dist.get_rank()
    by_digit = learn[y[learn].argsort(stable=True)]
    mine = by_digit.chunk(n)[rank] if own else learn[rank::n]
    return (x[mine], y[mine]), (x[held], y[held])


# %% [markdown]
# `Site` has all parts of a replica. An **inner step** is a step that a site takes alone, with AdamW,
# on 32 random images. `average` may change the gradients before the step.


# %%
class Site:
    def __init__(self, own=False, seed=0):
        self.images, self.held = data(own)
        self.drawn = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
        self.model = net(seed)
        self.params = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.params, 2e-3, weight_decay=0.1)

    def step(self, average=lambda params: None):
        x, y = self.images
        at = torch.randint(len(x), (32,), generator=self.drawn)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(x[at]), y[at]).backward()
        average(self.params)
        self.optimizer.step()


# %%
@torch.no_grad()
def held_loss(site):
    x, y = site.held
    return nn.functional.cross_entropy(site.model(x), y).item()


# %% [markdown]
# Your functions work on a **line**: all numbers of the model in one tensor.


# %% tags=["answers"]
def all_gather(whole, mine):
    """Fill `whole` with the tensors `mine` of all ranks, in the order of the ranks."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine)


def line(parameters):
    """Return all numbers of some parameters in one line: a copy."""
    return torch.cat([p.detach().flatten() for p in parameters])


@torch.no_grad()
def put(values, parameters):
    """Copy a line of numbers into some parameters."""
    for p, part in zip(parameters, values.split([p.numel() for p in parameters])):
        p.copy_(part.view_as(p))


# %% [markdown]
# ## How much of a step is the network?
#
# The first training is data parallel, as in lab 04: the ranks average their gradients in each step.
# `on_its_own` takes the same step without an exchange.


# %%
def averaged(params, group=None):
    both = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(both, group=group)
    both /= dist.get_world_size(group)
    for p, part in zip(params, both.split([p.numel() for p in params])):
        p.grad.copy_(part.view_as(p))


def every_step(steps, own=False, seed=0):
    site = Site(own, seed)
    for _ in range(steps):
        site.step(averaged)
    return site


def on_its_own():
    Site().step()


# %%
def timed(cluster, way, *arguments):
    return cluster.run(lambda: way(*arguments) and None)


site = Cluster(1, machine="1 GFLOP/s")
print(f"a step of a site alone: {timed(site, on_its_own).trace.duration_ms:.4f} ms")

# %% [markdown]
# **Predict:** a ring all-reduce of four ranks has six rounds. Each round has a latency of 20 ms and
# carries a quarter of the 302,632 B, at 125,000 B a ms. How many ms does a step take with the
# exchange?

# %% guess="step_ms"
step_ms = 13.8772 + 6 * (20 + 302632 / 4 / 125e3)  # your prediction, in ms

# %%
with_sum = timed(sites, every_step, 1)
show(with_sum)
beside(step_ms, with_sum.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** the ranks wait for the network for nine tenths of the step, and six latencies
# are nearly all of this time. The overlap of lab 06 cannot hide 124 ms of communication behind 14 ms
# of computation.
#
# In **local SGD**, each site takes many inner steps, and then all sites average their *parameters*
# ([Stich 2019](https://arxiv.org/abs/1805.09767)). This communication is called an exchange.

# %% [markdown]
# ## Your turn: steps between exchanges


# %% exercise="steps_between"
def steps_between(step_ms, nbytes, n, latency_ms, gbit, share):
    """Return the least number of steps between exchanges, at least 1: an int.

    An exchange is a ring all-reduce of `nbytes` over n ranks on links of `gbit` Gbit/s, exposed
    in full. A step takes `step_ms`. Exchanges may take at most `share` of all time.
    """
    # BEGIN SOLUTION
    exchange_ms = 2 * (n - 1) * (latency_ms + nbytes / n * 8 / gbit / 1e6)
    return max(1, math.ceil(exchange_ms * (1 - share) / (share * step_ms)))
    # END SOLUTION


# %% check="steps_between"
check(steps_between)

# %%
print(steps_between(13.8772, 302632, 4, 20, 1, 0.1), "steps, for a tenth of the time")
print(steps_between(100, 4e10, 14, 60, 1, 0.05), "steps of ten billion parameters")

# %% [markdown]
# Real trainings do not send ten billion parameters in one piece. You will see two better ways:
# fragments, and fewer bytes for each number.

# %% [markdown]
# ## How far do the sites come apart?
#
# Between exchanges, each site trains on its own. `drift` averages the parameters every 16 steps and
# returns the distance of the sites from their mean after each step.
#
# **Predict:** does the distance grow like the number of steps, or like the square root of this
# number? Is the distance larger if each site has digits of its own?


# %%
def drift(own, steps=32, every=16):
    site, n, far = Site(own), dist.get_world_size(), []
    for t in range(1, steps + 1):
        site.step()
        mine, mean = line(site.params), line(site.params) / n
        dist.all_reduce(mean)
        square = (mine - mean).square().sum() / n
        dist.all_reduce(square)
        far.append(square.sqrt().item())
        if t % every == 0:
            put(mean, site.params)
    return far


# %%
import matplotlib.pyplot as plt

plt.style.use("ddpkit.view.plain")
plt.figure(figsize=(6, 3))
for about, own in (("same digits", False), ("own digits", True)):
    far = Cluster(4).run(drift, own).results[0] or []  # None if the run is skipped
    plt.plot(range(1, len(far) + 1), far, label=about)
    print(
        f"{about}: after steps 1, 4, 8, 16, 17:", *(f"{far[t - 1]:.2f}" for t in (1, 4, 8, 16, 17))
    )
plt.xlabel("step"), plt.ylabel("distance"), plt.ylim(0), plt.legend()
plt.show()

# %% [markdown]
# **Notice:** the distance grows in neither way. Noise alone would double the distance from
# step 4 to step 16; here the distance grows 2.5 times. If each site has digits of its own, the sites
# also move in different directions. Averaging parameters that are far apart does not average the
# knowledge in them.

# %% [markdown]
# **Predict:** two sites have solved one task in two ways. Does the mean of the weights solve the
# task?
#
# <details><summary>An answer</summary>
#
# Often the mean is worse than both. For example, two hidden units can change places, and the network
# computes the same function as before. In the mean of the two networks, both units are the same
# mixture of the two units.
#
# </details>

# %% [markdown]
# ## A common place to go on from
#
# After some inner steps, the four sites have different parameters. Averaging takes the mean of these
# parameters. An **outer optimizer** takes the mean *difference* from the last common start as a
# gradient, and takes a step from this start. DiLoCo uses SGD with Nesterov's momentum ([Douillard
# and others 2023](https://arxiv.org/abs/2311.08105)).

# %% [markdown]
# With the mean difference $g$, momentum $\mu$ and velocity $v$, Nesterov's step is
#
# $$ v \leftarrow \mu v + g \qquad \text{start} \leftarrow \text{start} - \text{lr}\,(g + \mu v) $$
#
# **Predict:** lr is 0.7, the momentum is 0.9, and the velocity is 0 at first. The first step moves
# `start` by a multiple of the mean difference $g$. Which multiple?

# %% guess="first_step"
first_step = 0.7 * (1 + 0.9)  # your prediction

# %% [markdown]
# **Predict:** which of the learning rate, the momentum, the start and the velocity must be equal on
# all ranks?
#
# <details><summary>An answer</summary>
#
# All four must be equal. Then all ranks compute the same next start from the same mean, and only the
# differences travel.
#
# </details>

# %% [markdown]
# ## Your turn: an outer optimizer
#
# `begin` starts the exchange, and `end` waits for the exchange. Between the two calls, the ranks may
# take more inner steps. `keep` is the share of the effect of these inner steps that remains after
# `end`. One all-reduce is enough for all parameters, and `step` sends nothing.


# %% exercise="Outer"
class Outer:
    """The outer optimizer of some parameters: SGD with Nesterov's momentum, the same on all ranks.

    `start`, a line, is the last common place of all replicas. The gradient of an outer step is the
    mean over the ranks of the distance from there: start - parameters.
    """

    def __init__(self, parameters, lr=0.7, momentum=0.9):
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.start = line(self.parameters)
        self.velocity = torch.zeros_like(self.start)

    def begin(self):
        """Start the exchange, and return at once: the replicas may go on meanwhile."""
        # BEGIN SOLUTION
        self.mean = self.start - line(self.parameters)
        self.work = dist.all_reduce(self.mean, async_op=True)
        # END SOLUTION

    def end(self, keep=0.0):
        """Wait for the exchange, and take the step."""
        # BEGIN SOLUTION
        self.work.wait()
        self.step(self.mean / dist.get_world_size(), keep)
        # END SOLUTION

    def step(self, mean, keep=0.0):
        """Step `start` by lr, momentum and the mean difference.

        Then a parameter p becomes keep * p + (1 - keep) * (the value in the new start).
        """
        # BEGIN SOLUTION
        self.velocity = self.momentum * self.velocity + mean
        self.start = self.start - self.lr * (mean + self.momentum * self.velocity)
        put(keep * line(self.parameters) + (1 - keep) * self.start, self.parameters)
        # END SOLUTION


# %% check="Outer"
check(Outer)


# %%
def one_outer_step():
    model = net()
    outer = Outer(model.parameters())
    put(outer.start - 1, model.parameters())  # every site has moved by -1
    before = outer.start
    outer.begin()
    outer.end()
    return (before - outer.start).mean().item()


beside(first_step, Cluster(2).run(one_outer_step).results[0] or first_step, "times the difference")

# %% [markdown]
# `trained` takes one outer step after each group of `every` inner steps. With lr 1 and momentum 0,
# an outer step only averages the parameters.


# %%
def trained(every, steps, own=False, seed=0, lr=1.0, momentum=0.0):
    site = Site(own, seed)
    outer = Outer(site.params, lr, momentum)
    for t in range(1, steps + 1):
        site.step()
        if t % every == 0:
            outer.begin()
            outer.end()
    return site


# %% [markdown]
# **Predict:** with an exchange every 16 steps, how many ms does a step take on average?

# %% guess="each_ms"
each_ms = 13.8772 + 123.632 / 16  # your prediction, in ms

# %%
every_16 = timed(sites, trained, 16, 16)
beside(each_ms, every_16.trace.duration_ms / 16, "ms a step")

# %% [markdown]
# The next cell prints the losses on the held-out images, for two seeds.


# %%
def losses(way, *arguments, seeds=2, **named):
    return [held_loss(way(*arguments, seed=seed, **named)) for seed in range(seeds)]


def tell(about, found):
    if found:  # None if the run is skipped
        print(f"{about:30} loss", " and ".join(f"{each:.3f}" for each in found))


# %% [markdown]
# **Predict:** in 2.75 s, the sites can take 20 steps that average gradients each time, or 128 steps
# with an exchange every 16 steps. Which training has the lower loss? How does the second loss change
# if each site has digits of its own?

# %%
four = Cluster(4)
tell("20 steps, gradients each step", four.run(losses, every_step, 20).results[0])
tell("128 steps, averaged every 16", four.run(losses, trained, 16, 128).results[0])
tell("the same, own digits", four.run(losses, trained, 16, 128, own=True).results[0])

# %% [markdown]
# **Notice:** in the same time, local SGD takes six times as many steps, and reaches a much
# lower loss. If each site has digits of its own, the loss is several times as large: this is the
# price of the drift.

# %% [markdown]
# Does the outer optimizer help? The next cell makes 32 exchanges. Each site has digits of its own,
# and there is one seed.
#
# **Predict:** which loss is lower at the end: the loss of averaging, or the loss of lr 0.7 with
# momentum 0.9?

# %%
for lr, momentum in ((1.0, 0.0), (0.7, 0.9)):
    options = {"own": True, "lr": lr, "momentum": momentum}
    run = four.run(losses, trained, 16, 512, seeds=1, **options)
    tell(f"lr {lr}, momentum {momentum}", run.results[0])

# %% [markdown]
# **Notice:** momentum helps if the differences of many rounds point in the same direction.
# Momentum 0.9 needs more than $1/(1-0.9) = 10$ rounds to take effect, and moves a nearly trained
# model too far. A run with one seed is only a hint. A language model may need different values:
# DiLoCo found 0.7 and 0.9 with 500 inner steps and eight workers.

# %% [markdown]
# ## Exchanges while the sites compute
#
# Now the link is slower, with 10 Mbit/s, and the sites make an exchange every 64 steps. The sites
# begin an exchange, take some more inner steps, and then end the exchange. The number of these steps
# is the *delay*.

# %%
thin = Cluster(4, machine="1 GFLOP/s", link="10 Mbit/s, 20 ms")

# %% [markdown]
# **Predict:** the exchange takes `6 * (20 + 302632 / 4 / 1.25e3)` ms, and a step takes 13.8772 ms.
# How many steps of delay hide the exchange?

# %% guess="enough"
enough = 6 * (20 + 302632 / 4 / 1.25e3) / 13.8772  # your prediction, in steps

# %% [markdown]
# With fewer bytes in an exchange, a shorter delay is enough. A **fragment** is a part of the
# parameters that is exchanged by itself. Fragment k has the layers k and k + 3, and the fragments
# take turns ([Streaming DiLoCo](https://arxiv.org/abs/2501.18512)).

# %% [markdown]
# ## Your turn: a stream of fragments


# %% exercise="stream"
def stream(step, fragments, every, delay):
    """Return the fragments that begin and that end after inner step `step`, counted from 1.

    Return two lists. Fragment k begins every `every` steps, for the first time after step (k + 1) *
    every // fragments. A fragment ends `delay` steps after the begin; fragments <= every and
    delay < every.
    """
    # BEGIN SOLUTION
    first = [(k + 1) * every // fragments for k in range(fragments)]

    def due(t):
        return [k for k, f in enumerate(first) if t >= f and (t - f) % every == 0]

    return due(step), due(step - delay)
    # END SOLUTION


# %% check="stream"
check(stream)


# %%
def parts(model, fragments):
    linear = [each for each in model if isinstance(each, nn.Linear)]
    chosen = [linear[k::fragments] for k in range(fragments)]
    return [[p for each in some for p in each.parameters()] for some in chosen]


# %%
def streamed(fragments, delay, every, steps, seed=0, keep=0.0):
    site, under_way = Site(seed=seed), set()
    outers = [Outer(some, 0.7, 0.5) for some in parts(site.model, fragments)]
    for t in range(1, steps + 1):
        site.step()
        begin, end = stream(t, fragments, every, delay)
        for k in begin:
            outers[k].begin()
        for k in end:
            outers[k].end(keep)
        under_way = (under_way | set(begin)) - set(end)
    for k in under_way:  # the last exchanges
        outers[k].end(keep)
    return site


# %%
def exposed_ms(fragments, delay, steps):
    run = timed(thin, streamed, fragments, delay, 64, steps)
    return run.trace.duration_ms - 13.8772 * steps


waited = exposed_ms(1, 0, 64)
for fragments, delay in ((1, 21), (1, 35), (3, 8), (3, 20)):
    late = exposed_ms(fragments, delay, 64 + delay)
    print(f"fragments {fragments}, {delay:2} steps later: {late:7.3f} ms exposed")
beside(enough, waited / 13.8772, "steps")

# %% [markdown]
# **Notice:** the exchange of the largest fragment takes 278.5 ms, so a delay of 20.07 steps
# hides this exchange. Three fragments send as many bytes as one piece, and wait for three times as
# many latencies. The gain is a shorter delay: at no time is more than one fragment on its way. On a
# link of 1 Gbit/s, fragments would gain nothing, because there an exchange is nearly all latency.

# %%
show(timed(thin, streamed, 3, 20, 64, 84))

# %% [markdown]
# **Predict:** a fragment's new start comes 8 steps late. With `keep` 0, the 8 steps are lost. With
# `keep` 1, all 8 steps remain. Which `keep` gives the lower loss?

# %%
for keep in (0.0, 1.0):
    run = four.run(losses, streamed, 3, 8, 32, 256, keep=keep, seeds=1)
    tell(f"keep {keep}", run.results[0])

# %% [markdown]
# **Notice:** with `keep` 1 the new start never reaches a replica, so the sites train alone.
# The paper on Streaming DiLoCo keeps one half.

# %% [markdown]
# ## One byte a number
#
# Each number of a difference has 4 bytes. A number in **int8** has 1 byte: it is one of the levels
# −128 to 127, times a scale. Rounding removes a part of each number. Error feedback (lab 07) keeps
# this part, and adds it to the next exchange ([Karimireddy and others
# 2019](https://arxiv.org/abs/1901.09847)).

# %% [markdown]
# ## Your turn: a mean by bytes
#
# Each rank needs the scales of the other ranks too. A scale can travel with its levels, as four
# bytes: `scale.view(1).view(torch.uint8)`.


# %% exercise="mean_by_bytes"
def mean_by_bytes(x, error):
    """Return the mean over the ranks of x + error, each rounded to int8, and this rank's new error.

    x and error are float32 lines. A rank's levels are -127 to 127 times the rank's scale: the
    largest absolute value / 127. The new error is the part that rounding takes from the rank's
    numbers. Use a single all-gather: one byte for each number, and 4 bytes for the scale. A line of
    zeros stays zero.
    """
    # BEGIN SOLUTION
    n, wanted = dist.get_world_size(), x + error
    scale = wanted.abs().max().clamp(min=2**-100) / 127
    levels = (wanted / scale).round().to(torch.int8)
    mine = torch.cat([scale.view(1).view(torch.uint8), levels.view(torch.uint8)])
    whole = mine.new_empty(n * len(mine))
    all_gather(whole, mine)
    scales, numbers = whole.view(n, -1).split([4, len(x)], dim=1)
    scales = scales.flatten().view(torch.float32).view(n, 1)
    numbers = numbers.flatten().view(torch.int8).view(n, -1)
    return (numbers * scales).mean(0), wanted - levels * scale
    # END SOLUTION


# %% check="mean_by_bytes"
check(mean_by_bytes)

# %% [markdown]
# **Predict:** on the thin line, an all-gather of four ranks has three rounds, and each round carries
# 75,662 B at 1,250 B a ms. How many ms does an exchange take?

# %% guess="byte_ms"
byte_ms = 3 * (20 + (75658 + 4) / 1.25e3)  # your prediction, in ms


# %%
def one_exchange(bytewise):
    x = torch.ones(75658)
    if bytewise:
        mean_by_bytes(x, torch.zeros_like(x))
    else:
        dist.all_reduce(x)


floats, by_bytes = thin.run(one_exchange, False), thin.run(one_exchange, True)
print(f"by floats {floats.trace.duration_ms:.3f} ms")
beside(byte_ms, by_bytes.trace.duration_ms, "ms")

# %% [markdown]
# **Notice:** an exchange by bytes takes half of the time, not a quarter, because an
# all-gather sends each line to all ranks. With eight ranks or more, this exchange sends as many
# bytes as the all-reduce, or more. Then an exchange in two steps is better, as in torchft
# ([#201](https://github.com/pytorch/torchft/pull/201)).

# %% [markdown]
# With 2 bits, the levels are −1, 0 and 1 times the largest number.
#
# **Predict:** with 2 bits, which percentage of the numbers of a line is not 0?


# %%
def to_levels(x, bits):
    scale = x.abs().max() / (2 ** (bits - 1) - 1)
    return (x / scale).round() * scale


def share_left(bits):
    site = Site()
    start = line(site.params)
    for _ in range(16):
        site.step()
    return (to_levels(start - line(site.params), bits) != 0).double().mean().item()


for bits in (8, 2):
    print(
        f"{bits} bits: {100 * (Cluster(1).run(share_left, bits).results[0] or 0):.3f} % are not 0"
    )

# %% [markdown]
# **Predict:** does the training need error feedback with 8 bits? Does it need error feedback with 2
# bits?


# %%
def rounded(bits, feedback, steps=128, seed=0):
    site, error = Site(seed=seed), 0.0
    outer = Outer(site.params, 0.7, 0.5)
    for t in range(1, steps + 1):
        site.step()
        if t % 16 == 0:
            wanted = outer.start - line(site.params) + error
            sent = to_levels(wanted, bits)
            error = wanted - sent if feedback else 0.0
            dist.all_reduce(sent)
            outer.step(sent / dist.get_world_size())
    return site


# %%
for bits, feedback in ((8, False), (2, False), (2, True)):
    about = "error carried on" if feedback else "error dropped"
    tell(f"{bits} bits, {about}", four.run(losses, rounded, bits, feedback).results[0])

# %% [markdown]
# **Notice:** with 8 bits, the training works without error feedback. With 2 bits, about six
# of seven numbers become 0, and only error feedback gives a low loss. INTELLECT-1 sent int8 between
# continents ([2024](https://arxiv.org/abs/2412.01152)), and Streaming DiLoCo sent 4 bits for each
# number.

# %% [markdown]
# ## One site is slow
#
# Site 3 now computes at half the speed. Every site takes 16 steps between exchanges.
#
# **Predict:** the slow site computes for 32 · 13.8772 ms. Then the ring needs five more messages in
# a row, of 20 ms and 302,632 / 4 B each. How many ms do 16 steps and their exchange take?

# %% guess="slow_ms"
slow_ms = 32 * 13.8772 + 5 * (20 + 302632 / 4 / 125e3)  # your prediction, in ms

# %%
slow = Cluster(4, machine="1 GFLOP/s", link="1 Gbit/s, 20 ms", speed={3: 0.5})
one, two = (timed(slow, trained, 16, 16 * each) for each in (1, 2))
show(one)
beside(slow_ms, two.trace.duration_ms - one.trace.duration_ms, "ms a round")

# %% [markdown]
# **Notice:** the three fast sites compute for 222 ms and wait for the rest of the time. If
# site 3 takes 8 steps in place of 16, no site waits. But then the difference of site 3 comes from
# fewer steps, so its weight in the mean must be smaller.

# %% [markdown]
# ## Your turn: a mean by steps


# %% exercise="mean_of"
def mean_of(difference, steps, group=None):
    """Return the mean of the group's differences, each weighted by its number of steps.

    A rank with 0 steps takes part, but the difference does not count, even if it contains nan. The
    result is 0 if no rank has taken a step. Use a single all-reduce, for the difference and one
    more number.
    """
    # BEGIN SOLUTION
    mine = difference * steps if steps else torch.zeros_like(difference)
    both = torch.cat([mine, mine.new_tensor([float(steps)])])
    dist.all_reduce(both, group=group)
    return both[:-1] / both[-1].clamp(min=1)
    # END SOLUTION


# %% check="mean_of"
check(mean_of)


# %%
def by_steps():
    site, steps = Site(), 8 if dist.get_rank() == 3 else 16
    outer = Outer(site.params)
    for _ in range(steps):
        site.step()
    outer.step(mean_of(outer.start - line(site.params), steps))


print(f"8 steps on site 3: {slow.run(by_steps).trace.duration_ms:.3f} ms a round")

# %% [markdown]
# **Notice:** weights by steps are right if all sites have the same data. If only site 3 has
# images of the digit 9, half as many steps give this digit half the weight. So the choice of weights
# is a decision.

# %% [markdown]
# ## One site leaves, one comes back
#
# Sites fail, and come back. A **quorum** is the list of the ranks that take part in a round. All
# these ranks need the same list, because each rank uses the list to choose its group. The ranks
# agree through a store (lab 07), before they exchange tensors.

# %% [markdown]
# `store.set(key, value)` writes a value, and `store.add(key, 1)` adds 1 to a counter and returns the
# sum. `store.check([key])` says if a key is there, and `store.wait([key], timedelta(seconds=s))`
# waits for a key, or raises an error. `store.compare_set(key, "", value)` writes only if the key is
# not there yet, and returns the stored value. So only the first writer succeeds.

# %% [markdown]
# ## Your turn: a quorum


# %% exercise="quorum"
def quorum(store, name, rank, world_size, least, seconds):
    """Return the ranks that take part in round `name`: a sorted list, equal on all ranks.

    The list is decided when all world_size ranks have asked, or when a rank has waited for
    `seconds`; all ranks that have asked by then are in the list. No rank waits after the decision:
    a late rank gets the list at once, without itself. A rank raises RuntimeError if the rank's time
    is over while fewer than `least` ranks have asked. `store` is any store of c10d.
    """
    # BEGIN SOLUTION
    members = f"{name}/members"
    store.set(f"{name}/{rank}", "here")
    if store.add(f"{name}/count", 1) < world_size:
        with contextlib.suppress(RuntimeError):  # the time is over, and no rank has decided
            store.wait([members], timedelta(seconds=seconds))
    here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
    if len(here) < least and not store.check([members]):
        raise RuntimeError(f"{len(here)} ranks are there, and {least} are needed")
    agreed = store.compare_set(members, "", " ".join(map(str, here)))
    return [int(r) for r in agreed.split()]
    # END SOLUTION


# %% check="quorum"
check(quorum)

# %% [markdown]
# **Predict:** a replica comes back after a day. Which numbers does the replica need before it may
# take part?
#
# <details><summary>An answer</summary>
#
# The replica needs the start and the velocity of the outer optimizer. No site sends the state of its
# inner optimizer.
#
# </details>

# %% [markdown]
# ## Your turn: catch up


# %% exercise="catch_up"
def catch_up(tensors, have, lack):
    """Fill the tensors of each rank in `lack` with the tensors of a rank in `have`.

    have and lack are lists of ranks; ranks in neither list are away, and do nothing. All tensors
    are sent, parameters or not, and only to ranks in `lack`. The ranks in `have` share the sending:
    each sends to equally many ranks, or to one rank more.
    """
    # BEGIN SOLUTION
    for i, late in enumerate(lack):
        source = have[i % len(have)]
        for tensor in tensors:
            if dist.get_rank() == source:
                dist.send(tensor, late)
            elif dist.get_rank() == late:
                dist.recv(tensor, source)
    # END SOLUTION


# %% check="catch_up"
check(catch_up)

# %% [markdown]
# **Predict:** sites 1 and 3 lack two lines of 302,632 B, and sites 0 and 2 have them. The first
# message has a latency of 20 ms. How many ms does `catch_up` take?

# %% guess="caught_ms"
caught_ms = 20 + 2 * 302632 / 125e3  # your prediction, in ms


# %%
def two_lines():
    catch_up([torch.zeros(75658), torch.zeros(75658)], [0, 2], [1, 3])


beside(caught_ms, sites.run(two_lines).trace.duration_ms, "ms")

# %% [markdown]
# Now train for six rounds with four inner steps each. Site 3 is away for 1.9 s before round 1, and
# site 2 leaves before round 4. All groups are made beforehand, because `new_group` needs every rank.


# %%
def all_groups():
    n = dist.get_world_size()
    sets = [each for size in range(2, n + 1) for each in itertools.combinations(range(n), size)]
    return {members: dist.new_group(list(members)) for members in sets}


def take_part(k, here, store, outer, groups):
    before = [int(r) for r in store.get(f"round {k - 1}/members").split()] if k else here
    have, lack = [r for r in here if r in before], [r for r in here if r not in before]
    catch_up([outer.start, outer.velocity], have, lack)
    difference = outer.start - line(outer.parameters)
    steps = 0 if dist.get_rank() in lack else 4
    outer.step(mean_of(difference, steps, groups[tuple(here)]))
    return lack


# %%
def rounds(count=6):
    rank, n, groups = dist.get_rank(), dist.get_world_size(), all_groups()
    store, site = dist.distributed_c10d._get_default_store(), Site()
    outer, told, began = Outer(site.params), [], time.monotonic()
    for k in range(count):
        if (rank, k) == (2, 4):
            return told  # site 2 is gone
        time.sleep(1.9 * ((rank, k) == (3, 1)))  # site 3 is away for a while
        for _ in range(4):
            site.step()
        here = quorum(store, f"round {k}", rank, n, least=2, seconds=0.6)
        if rank in here:
            lack = take_part(k, here, store, outer, groups)
            told.append((k, here, lack, line(site.params).sum().item(), time.monotonic() - began))
    return told


# %% [markdown]
# **Predict:** site 3 comes back in some round. By which number of steps does `mean_of` divide the
# sum in this round? How long does a round with a missing site take?

# %%
run = sites.run(rounds)
for k, here, lack, _, seconds in run.results[0] or []:
    late = f", {lack} catches up" if lack else ""
    print(f"round {k} at {seconds:.2f} s: {here}{late}")
last = {round(each[-1][3], 2) for each in run.results if each and each[-1][0] == 5}
print("the sites that are left have equal parameters:", len(last) == 1)

# %% [markdown]
# **Notice:** the sum was divided by 12 steps: three sites took 4 steps each, and the late
# site took none. In each round with a missing site, every other site waits for 0.6 s. torchft checks
# the heartbeats of replicas, and leaves out a dead replica at once
# ([#35](https://github.com/pytorch/torchft/pull/35)).

# %% [markdown]
# **In words:** a quorum of 3 out of 4 goes on. The fourth site was not dead, only slow, and has
# taken 40 more steps on its own. Do you use these steps? If so, how? If not, why not?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Sites of two ranks
#
# A real site has many GPUs. Take two sites of two ranks. The ranks of a site average their gradients
# in each step. Every 16 steps, each rank makes an exchange with the rank of the same number at the
# other site.

# %%
two_sites = Cluster(
    4,
    machine="1 GFLOP/s",
    link={"hosts of": 2, "inside": "100 Gbit/s, 5 us", "between": "1 Gbit/s, 20 ms"},
)

# %% [markdown]
# First, all four ranks average their gradients in every step. A part of the gradients travels in six
# rounds, and three of these rounds cross the slow link. Both ranks of a site share the slow link: a
# part that comes from inside the site waits until the link has carried the earlier part. A part of
# 75,658 B takes 0.605 ms on the slow link, and 0.006 ms inside.
#
# **Predict:** how many ms does a step take?

# %% guess="flat_ms"
flat_ms = 13.877 + 3 * (20 + 0.605) + 3 * (0.005 + 0.006) + 0.605  # your prediction, in ms

# %%
flat = timed(two_sites, every_step, 1).trace.duration_ms
beside(flat_ms, flat, "ms a step, all four ranks in every step")

# %% [markdown]
# **Predict:** an all-reduce inside a site takes 0.034 ms, and an exchange between the sites takes 43
# ms, every 16 steps. How many ms does a step take?

# %% guess="sites_ms"
sites_ms = 13.877 + 0.034 + 43.0 / 16  # your prediction, in ms


# %%
def in_sites(steps):
    rank, site = dist.get_rank(), Site()
    inside, between = (
        [dist.new_group(each) for each in pairs][at]
        for pairs, at in (([[0, 1], [2, 3]], rank // 2), ([[0, 2], [1, 3]], rank % 2))
    )
    outer = Outer(site.params)
    for t in range(1, steps + 1):
        site.step(lambda params: averaged(params, inside))
        if t % 16 == 0:
            outer.step(mean_of(outer.start - line(site.params), 16, between))


# %%
beside(sites_ms, two_sites.run(in_sites, 16).trace.duration_ms / 16, "ms a step")

# %% [markdown]
# **Notice:** the ranks use the fast links in every step, and the slow link only every 16
# steps. Each replica of DiLoCo is such a site.

# %% [markdown]
# **In words:** you train ten billion parameters on 14 sites, with 60 ms and 1 Gbit/s between two
# sites. A step takes 100 ms. Which numbers do you exchange, how often, and which disadvantages do
# you accept?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Rollouts, optional
#
# In reinforcement learning on texts, ranks also wait for each other. Eight ranks generate
# **rollouts**, texts of very different lengths. Rank 0 trains on eight rollouts a step, and sends
# its new weights with each request. The **age** of a rollout is the number of steps between the
# request and the training on the rollout. `bound` limits the age: rank 0 requests rollouts only for
# the current step and the next `bound` steps.

# %%
import random

from ddpkit import busy


def ask(rank, version, number):
    dist.send(
        torch.tensor([version, number] + [0.0] * 998), rank
    )  # the version, the number, and the weights


def take(there):
    answer = torch.empty(3)
    rank = dist.recv(answer)  # any rank's answer
    there[int(answer[0])] = int(answer[1])
    return rank


# %%
def trainer(bound, steps, batch):
    free = list(range(1, dist.get_world_size()))
    version, asked, there, ages = 0, 0, {}, []
    while version < steps:
        while free and asked // batch - version <= bound:  # the bound allows the next rollout
            ask(free.pop(0), version, asked)
            asked += 1
        free.append(take(there))
        numbers = range(version * batch, (version + 1) * batch)
        if all(k in there for k in numbers):
            ages += [version - there.pop(k) for k in numbers]
            busy("20 ms", "train")
            version += 1
    return ages, free


# %%
def generator():
    drawn, x = random.Random(dist.get_rank()).paretovariate, torch.empty(1000)
    while dist.recv(x, 0) == 0 and x[0] >= 0:
        ms = 10 * drawn(1.5)
        busy(f"{ms} ms", "generate")
        dist.send(torch.tensor([x[1].item(), x[0].item(), ms]), 0)


# %%
def rollouts(bound):
    if dist.get_rank():
        return generator()
    began = time.perf_counter()  # emulated seconds
    ages, free = trainer(bound, 40, 8)
    seconds = time.perf_counter() - began
    while len(free) < dist.get_world_size() - 1:
        free.append(take({}))
    for rank in free:
        ask(rank, -1, -1)  # the end
    return 1e3 * seconds / 40, max(ages)


# %% [markdown]
# **Predict:** the slowest of eight rollouts takes 120 ms on average, and a step of training takes
# 20 ms. How many ms does a step take with bound 0?

# %% guess="sync_ms"
sync_ms = 120 + 20  # your prediction, in ms

# %%
nine, found = Cluster(9, link="10 Gbit/s, 50 us", speed=math.inf), {}
for bound in (0, 2, 8):
    found[bound], oldest = nine.run(rollouts, bound).results[0] or (0, 0)
    print(f"bound {bound}: {found[bound]:5.1f} ms a step, the oldest rollout {oldest} versions")
beside(sync_ms, found[0], "ms a step")

# %% [markdown]
# **Notice:** a bound of eight versions halves the time, and no rollout is dropped. Suppose
# that a trainer took rollouts in the order of their arrival, and dropped old rollouts. Then it would
# learn mainly from short texts, because long texts are old when they arrive
# ([AReaL](https://arxiv.org/abs/2505.24298) also limits the age).

# %% [markdown]
# ## The way out
#
# This program runs DiLoCo in plain torch. The inner optimizer is AdamW, and the outer optimizer is
# SGD with Nesterov's momentum.
#
# ```python
# import torch, torch.distributed as dist
# dist.init_process_group("gloo")
# torch.manual_seed(0)
# net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
# start = torch.nn.utils.parameters_to_vector(net.parameters()).detach().requires_grad_()
# inner = torch.optim.AdamW(net.parameters(), lr=2e-3)
# outer = torch.optim.SGD([start], lr=0.7, momentum=0.9, nesterov=True)
# torch.manual_seed(dist.get_rank())  # from here on each rank has its own data
# for step in range(1, 33):
#     x = torch.randn(32, 64)
#     inner.zero_grad()
#     torch.nn.functional.cross_entropy(net(x), x[:, :10].argmax(1)).backward()
#     inner.step()
#     if step % 8 == 0:
#         here = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
#         start.grad = (start.detach() - here) / dist.get_world_size()
#         dist.all_reduce(start.grad)
#         outer.step()
#         torch.nn.utils.vector_to_parameters(start.detach().clone(), net.parameters())
# dist.destroy_process_group()
# ```
#
# [torchft](https://github.com/pytorch/torchft) has a class `local_sgd.DiLoCo` for the same two
# optimizers.

# %% [markdown]
# ## In this lab you have
#
# - replaced a sum in every step by an exchange every 16 steps;
# - seen replicas drift apart, with the same data and with data of their own;
# - used an outer optimizer, and hidden exchanges of fragments;
# - sent one byte for each number, with error feedback;
# - let a slow site take fewer steps, and replicas leave and return.
#
# **Next:** a model of your own, under `ddpkit run`, on a cluster that you name.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 19_local_sgd.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
