# ---
# jupyter:
#   ddpkit:
#     builds: a cost model of a training step, fitted to measurements and verified on up to 16 machines; the cheapest cluster for a training
#     minutes: 100
#     needs: labs 03, 05 and 06
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
# # 09 · Scaling
#
# **You will build** a cost model of a training step. You fit the model to a machine and check the
# model against new runs. Then the model chooses a bucket cap, servers, a batch and a number of
# ranks, and computes the price of the whole training.
#
# **You need** labs 03, 05 and 06. About 100 minutes; a student's first try took
# 120 minutes.
#
# In each part of this lab, you *predict*, *run*, and look at the *ratio*.

# %%
import math, torch, torch.distributed as dist, matplotlib.pyplot as plt
from ddpkit import Cluster, beside, carry, check

# %%
from collections import namedtuple
from ddpkit.simulate import Step

predict = carry("predict")
plt.style.use("ddpkit.view.plain")
torch.set_num_threads(1)  # for tensors as small as here, threads only wait for each other

# %% [markdown]
# This lab uses two words: **compute** is the work that a rank does alone. The **price** is the time
# of one all-reduce, in seconds, as a function of its bytes.

# %% [markdown]
# ## A step on paper
#
# Forward takes 20 ms, and backward 40 ms. Backward makes four buckets of gradients, one every 10 ms,
# and the all-reduce of a bucket takes 20 ms. The optimizer takes no time.
#
# **Predict:** how long is the step? (The step takes at least 60 ms, if all communication is hidden,
# and at most 140 ms, if no communication is hidden.)

# %% guess="paper_ms"
paper_ms = 20 + 10 + 4 * 20  # your guess, in ms

# %% [markdown]
# You will write a function that computes the time of a step. The function needs a real step as its
# input. So torch's DDP trains the deep model of labs 05 and 06, on two ranks, each as fast as one
# core of a laptop.

# %%
link = "1 Gbit/s, 200 us"


def deep_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(48)))


# %%
def train(batch=256, cap=0.5, steps=5):
    from torch.nn.parallel import DistributedDataParallel as DDP

    model = DDP(deep_model(), bucket_cap_mb=cap, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, 128)).square().mean().backward()
        optimizer.step()


# %%
def step_ms(run):
    if "skipped" in run.trace.facts:  # under torchrun with too few ranks
        return None
    start, end = run.trace.step(-1).window_of(0)
    return (end - start) / 1e6


recorded = Cluster(2, link=link, machine="laptop core").run(train)
print(f"a step on 2 ranks: {step_ms(recorded):.1f} ms")

# %% [markdown]
# From the trace we keep the work that a rank did alone: the time of forward, the moment when each
# gradient was ready (counted from the start of backward), the bytes of each gradient, and the time
# after backward.

# %%
Compute = namedtuple("Compute", "forward ready sizes after")  # in s, s, bytes, s


def compute_of(step):
    """Convert a step of ddpkit's simulator to a `Compute`."""
    ready = [gradient.ready_ns / 1e9 for gradient in step.gradients]
    sizes = [gradient.bytes for gradient in step.gradients]
    return Compute(step.begin_ns / 1e9, ready, sizes, (step.finish_ns + step.optimizer_ns) / 1e9)


# %%
compute = compute_of(Step.typical(recorded.trace))
print(f"forward {compute.forward * 1000:.1f} ms, backward {compute.ready[-1] * 1000:.1f} ms,")
print(f"{len(compute.sizes)} gradients of {sum(compute.sizes) / 1e6:.1f} MB together")

# %% [markdown]
# ## Your turn: how long is a step?
#
# `step_time` calls the function `price(nbytes)` once for each bucket, for any kind of price. So the
# rest of this lab needs only different price functions, or a loop around `step_time`.


# %% exercise="step_time"
def step_time(compute, cap, price) -> float:
    """Return the seconds of one data-parallel step; its all-reduces overlap with backward.

    `compute.forward` and `compute.after` (the optimizer) are in seconds. Gradient i is ready
    `compute.ready[i]` seconds after the start of backward, and has `compute.sizes[i]` bytes, in
    order of readiness. A bucket closes when its bytes reach `cap` MB (2**20 bytes).
    `price(nbytes)` is the time of one all-reduce; call it once for each bucket. All-reduces go one
    after the other, and none begins before its last gradient is ready.
    """
    # BEGIN SOLUTION
    free, filled = 0.0, 0
    for i, (at, size) in enumerate(zip(compute.ready, compute.sizes)):
        filled += size
        if filled >= cap * 2**20 or i == len(compute.sizes) - 1:
            free = max(free, compute.forward + at) + price(filled)
            filled = 0
    return free + compute.after
    # END SOLUTION


# %% check="step_time"
check(step_time)

# %% [markdown]
# Begin with the step on paper. The price is 20 ms for any number of bytes.

# %%
paper = Compute(0.020, [0.010, 0.020, 0.030, 0.040], [10 * 2**20] * 4, 0.0)
beside(paper_ms, step_time(paper, 10, lambda nbytes: 0.020) * 1000, "ms")

# %% [markdown]
# **Notice:** the step time is neither the sum of compute and communication nor the longer of
# the two. The first bucket waits for its gradients, and then the link is busy until the end.
#
# Now take the real step. The price comes from lab 03's `predict`, which computes the time of a ring.


# %%
def ring_price(n, latency=200e-6, bandwidth=125e6):
    return lambda nbytes: predict("ring", n, nbytes, latency, bandwidth)


beside(step_time(compute, 0.5, ring_price(2)) * 1000, step_ms(recorded), "ms")

# %% [markdown]
# ## Four numbers
#
# On an unknown cluster, you have to measure latency and bandwidth: time all-reduces of many sizes,
# and fit two numbers to the times:
#
# $$t = \alpha \cdot 2(n-1) + \frac{1}{\beta} \cdot \frac{2(n-1)}{n} S$$
#
# **Predict:** you measure an all-reduce of 4 kB and an all-reduce of 40 MB. Which of the two numbers
# does each of the two times show?


# %%
def time_all_reduces(sizes):
    from time import perf_counter

    def once(size):
        x = torch.ones(size // 4)
        dist.barrier()
        start = perf_counter()
        dist.all_reduce(x)
        return perf_counter() - start

    return [once(size) for size in sizes]


# %%
sizes = [4_000, 40_000, 400_000, 4_000_000, 40_000_000]
times = Cluster(2, link=link, machine="laptop core").run(time_all_reduces, sizes).results[0]
for size, s in zip(sizes, times):
    print(f"{size:10,} bytes: {s * 1000:7.2f} ms")

# %% [markdown]
# ## Your turn: fit
#
# The times differ by a factor of hundreds. Least squares of *seconds* would fit almost only the
# longest time. So make the *relative* errors small: then an error of 1 % has the same weight for a
# short time as for a long time.


# %% exercise="fit"
def fit(features, seconds) -> list[float]:
    """Return the coefficients c for which sum(c[k] * features[i][k]) comes closest to seconds[i].

    Minimise the sum of squared *relative* errors: an error of 1 ms in 10 ms counts as much as an
    error of 1 s in 10 s. Add no constant term: a feature that is always 1 makes one. Returns a list
    of Python floats.
    """
    # BEGIN SOLUTION
    t = torch.tensor(seconds, dtype=torch.float64)
    rows = torch.tensor(features, dtype=torch.float64) / t[:, None]
    return torch.linalg.lstsq(rows, torch.ones_like(t)[:, None])[0].flatten().tolist()
    # END SOLUTION


# %% check="fit"
check(fit)

# %%
n = 2
alpha, per_byte = fit([(2 * (n - 1), 2 * (n - 1) / n * size) for size in sizes], times)
print(f"latency {alpha * 1e6:.0f} us, bandwidth {8 / per_byte / 1e9:.3f} Gbit/s")

# %% [markdown]
# **Notice:** the short times show the latency, and the long times show the bandwidth. The
# fit finds exactly the numbers of our link, because the time of this run is emulated.
#
# On a real network, the fitted latency is larger than the latency of the cable: the fit includes
# every fixed cost of an all-reduce, such as Python and the waking of a process.

# %% [markdown]
# The other two numbers are the fixed cost of a step and the cost of each sample.

# %%
batches = [64, 128, 256, 512]
alone = []
for batch in batches:
    run = Cluster(1, machine="laptop core").run(train, batch)
    alone.append(step_ms(run) / 1000)
fixed, per_sample = fit([(1, batch) for batch in batches], alone)
print(f"a step: {fixed * 1000:.1f} ms, and {per_sample * 1e6:.0f} us for each sample")

# %% [markdown]
# ## Are the predictions right?
#
# A model is worth as much as its predictions for *unseen* runs. All inputs of our model came from
# one run with a cap of 0.5 MB. The next cell predicts six other runs before these runs start:


# %%
def grown(compute, times):
    """Return the compute for `times` as many samples: forward and backward take longer."""
    ready = [at * times for at in compute.ready]
    return compute._replace(forward=compute.forward * times, ready=ready)


four = ring_price(2, bandwidth=125e6 / 4)
predictions = {
    "cap 0.1 MB": step_time(compute, 0.1, ring_price(2)),
    "cap 100 MB": step_time(compute, 100, ring_price(2)),
    "a quarter of the bandwidth": step_time(compute, 0.5, four),
    "twice the batch": step_time(grown(compute, 2), 0.5, ring_price(2)),
    "8 ranks": step_time(compute, 0.5, ring_price(8)),
    "16 ranks": step_time(compute, 0.5, ring_price(16)),
}

# %% [markdown]
# The last two predictions matter most: 8 and 16 real processes, each on its own machine, in emulated
# time. The processes share the two cores of your laptop, but no emulated clock counts the waiting for
# a core.


# %%
def on(n, link="1 Gbit/s, 200 us"):
    return Cluster(n, link=link, machine="laptop core")


runs = {
    "cap 0.1 MB": on(2).run(train, cap=0.1),
    "cap 100 MB": on(2).run(train, cap=100),
    "a quarter of the bandwidth": on(2, "250 Mbit/s, 200 us").run(train),
    "twice the batch": on(2).run(train, batch=512),
    "8 ranks": on(8).run(train),
    "16 ranks": on(16).run(train, steps=4),
}


# %%
def verify(predictions, runs):
    for name, seconds in predictions.items():
        measured = step_ms(runs[name])
        print(f"{name:27} predicted {seconds * 1000:6.1f} ms", end="")
        if measured is not None:
            print(f"   measured {measured:6.1f} ms   ratio {measured / seconds / 1000:.3f}", end="")
        print()


verify(predictions, runs)

# %% [markdown]
# **Notice:** the ratio farthest from 1 shows the error of the model. Twice the batch takes
# less than twice the compute: a part of the step, `fixed` above, does not depend on the batch, and
# `grown` doubles `fixed` too. All other predictions follow from one step and two numbers of the
# network.
#
# A real processor adds more error. In the next run, compute is *measured*, as time of your CPU.

# %%
yours = Cluster(2, link=link).run(train)
mine = compute_of(Step.typical(yours.trace))
beside(step_time(mine, 0.5, ring_price(2)) * 1000, step_ms(yours), "ms")

# %% [markdown]
# ## Choose: the bucket cap
#
# Is torch's default of 25 MB right for our training? We could measure every cap. But a run on a real
# cluster costs money, and our cost model gives a **lower bound** of the time with each cap: a cap
# does not change the compute, and real communication takes at least as long as the cost model says.
# (For twice the batch, it was not a lower bound: the step took less time than predicted.)

# %% [markdown]
# So as soon as one measured time is below the predictions of all remaining caps, no remaining cap can
# win.

# %% [markdown]
# ## Your turn: autotune
#
# **Predict:** of the eight caps below, how many does the tuner have to measure?


# %% exercise="autotune"
def autotune(measure, predicted) -> float:
    """Return the cap with the shortest measured step, after as few measurements as possible.

    `predicted[cap]` is the model's seconds, a lower bound of `measure(cap)`. `measure(cap)` takes
    long, because it runs real steps. So measure the most promising cap first and no cap twice, and
    stop when no remaining cap can beat the best measured step.
    """
    # BEGIN SOLUTION
    took = {}
    for cap in sorted(predicted, key=predicted.get):
        if took and predicted[cap] >= min(took.values()):
            break
        took[cap] = measure(cap)
    return min(took, key=took.get)
    # END SOLUTION


# %% check="autotune"
check(autotune)


# %%
def measure(cap):
    seconds = step_ms(Cluster(2, link=link).run(train, cap=cap)) / 1000
    print(f"cap {cap:5} MB: {seconds * 1000:.1f} ms")
    return seconds


caps = [0.03, 0.06, 0.12, 0.25, 0.5, 1, 2, 25]
predicted = {cap: step_time(mine, cap, ring_price(2)) for cap in caps}
best = autotune(measure, predicted)
print(f"best: {best} MB; the model says {predicted[25] / predicted[best]:.2f} times as long for 25")

# %% [markdown]
# **Notice:** these runs use the real time of *your* processor, so the numbers differ a
# little from run to run. The chosen cap is the best cap if the model really is a lower bound. The
# ratio above was a test of this bound.
#
# PyTorch's developers would like to have such a tool (pytorch/pytorch issue 118421, open since
# 2024).

# %% [markdown]
# ## 4,096 ranks
#
# From here on, you cannot run the steps, so the price must be right. A ring takes $2(n-1)$
# latencies. Recursive doubling, lab 03's butterfly, takes only $\log_2 n$ latencies, but sends all
# bytes in each round. NCCL chooses between a ring and a tree by the number of bytes, and our model
# can choose, too.

# %% [markdown]
# **Predict:** a step of ResNet-50 has 100 ms of compute, and a link has 100 Gbit/s and 10 µs. Each
# rank has the same batch size for any number of ranks (*weak scaling*). From how many ranks on is
# the efficiency below 80 %, if all-reduces use only rings?

# %% guess="ranks_at_80"
ranks_at_80 = 1000  # your guess

# %%
from ddpkit.simulate import resnet

big = compute_of(Step.of_model(resnet(50), compute_ns=100_000_000))
worlds = [2**k for k in range(13)]


def cheapest_price(n, latency, bandwidth):
    ways = ("ring", "butterfly")
    return lambda nbytes: min(predict(way, n, nbytes, latency, bandwidth) for way in ways)


efficiency = {
    kind.__name__: [0.1 / step_time(big, 25, kind(n, 10e-6, 12.5e9)) for n in worlds]
    for kind in (ring_price, cheapest_price)
}

# %%
plt.figure(figsize=(6, 3))
for name, shares in efficiency.items():
    plt.semilogx(worlds, shares, "o-", base=2, label=name.replace("_", " "))
plt.axhline(0.8, color="grey", linewidth=1), plt.ylim(0, 1.05), plt.minorticks_off()
plt.xlabel("ranks"), plt.ylabel("efficiency"), plt.xticks(worlds[::2], worlds[::2]), plt.legend()
plt.show()
shares = efficiency["ring_price"]
beside(ranks_at_80, next(n for n, share in zip(worlds, shares) if share < 0.8), "ranks")

# %% [markdown]
# **Notice:** with rings, latency limits weak scaling, and the bytes do not: the curve falls
# when $2(n-1)\alpha$ is as long as the time that backward can hide.
#
# Also, ranks are never equally fast. Suppose that in every step, each rank is slower by a few
# percent, at random. Then all ranks wait for the slowest rank of the step.

# %%
from ddpkit.simulate import noisy_steps, price_of

step = Step.of_model(resnet(50), compute_ns=100_000_000)
for n in (8, 64, 512, 4096):
    price = price_of("cheapest", n, "100 Gbit/s, 10 us")
    quiet, late = (
        noisy_steps(step, n, "unlimited", noise, steps=50, price=price) for noise in (0, 0.05)
    )
    print(f"{n:5} ranks: {quiet[0] / 1e6:.1f} ms, with 5 % of noise {sum(late) / 50 / 1e6:.1f} ms")

# %% [markdown]
# **Notice:** up to 512 ranks, noise adds more time with more ranks. With 4,096 ranks, the
# link is busy until the end of the step in any case, so a late rank adds less time.
#
# Move the sliders, and choose the "cheapest" all-reduce. In *strong* scaling, the ranks share one
# batch: with how many ranks is a step fastest?

# %%
from ddpkit.view import explore_scaling

explore_scaling(step, "100 Gbit/s, 10 us", world_size=256)

# %% [markdown]
# ## Read a paper with your model
#
# "The overlapping approach helps ResNet and BERT on NCCL attain 38.0% and 35.2% speedup", and 26.8 %
# and 21.5 % with gloo, says the DDP paper (Li and others, VLDB 2020, section 5.1).
#
# Backward is about two thirds of compute, because backward has two matrix products for each matrix
# product of forward.

# %% [markdown]
# **Predict:** take the network on which overlap saves the largest share of a step. How many percent
# of the step does overlap save there?

# %% guess="ceiling"
ceiling = 40  # your guess, in per cent: 2/3 of compute, in a step of 5/3


# %%
def gain(share, cap):
    """Return the % that overlap saves if communication takes `share` of the time of compute."""
    per_byte = share * 0.1 / sum(big.sizes)
    overlapped = step_time(big, cap, lambda nbytes: per_byte * nbytes)
    return 100 * (1 - overlapped / (0.1 + share * 0.1))


# %%
from ddpkit.data.published import OVERLAP

shares = [0.05 * k for k in range(1, 61)]
plt.figure(figsize=(6, 3))
for cap in (5, 25):
    plt.plot(shares, [gain(share, cap) for share in shares], label=f"step_time, {cap} MB")
for backend, style in (("NCCL", "-"), ("gloo", "--")):
    percent = OVERLAP["ResNet-50", backend].value
    plt.axhline(percent, color="grey", linestyle=style, linewidth=1, label=f"{backend}, paper")
plt.xlabel("communication ÷ compute"), plt.ylabel("% saved"), plt.ylim(0, 45), plt.legend()
plt.show()
beside(ceiling, max(gain(share, 5) for share in shares), "%")

# %% [markdown]
# **Notice:** no network reaches 40 %, and the paper's 38.0 % is just below 40 %. If the
# paper means "38 % less time", communication took about as long as backward. If the paper means
# "1.38 times as fast", overlap saved only 27.5 % of the time, and the network had a different speed.
# A percentage says little if nobody states its base.

# %% [markdown]
# With gloo, overlap saves a smaller percentage, but as much time: the backward hides as much
# communication as with NCCL, but the whole step is longer.

# %% [markdown]
# **In words:** a colleague says: "overlap gave us 38 %". Which questions do you ask before you expect
# the same gain on your own cluster?

# %% [markdown]
# *Your words:*
#
# <details><summary>An answer</summary>
#
# Do the 38 % mean less time or more speed? How long was communication, compared with backward? If
# communication is much shorter or much longer than backward, the gain is small.
#
# </details>

# %% [markdown]
# ### One published number predicts another
#
# On 256 GPUs, a step of ResNet-50 with NCCL takes about twice as long as a step on a single GPU, so
# 256 GPUs work only as fast as 128 GPUs without communication (the same paper, section 5.3; the
# abstract says "near-linear").

# %% [markdown]
# A step that skips the all-reduce (lab 06's `no_sync`) takes only the time of a step on a single
# GPU.
#
# **Predict:** how many percent of the time are saved if only every 8th step has an all-reduce? The
# paper measured this number.

# %% guess="saved"
saved = 100 * (1 - (7 + 2) / (8 * 2))  # your guess, in per cent

# %%
from ddpkit.data.published import SKIPPING_8, SLOWER_AT_256

r = SLOWER_AT_256["ResNet-50", "NCCL"].value
print(f"with r = {r:g}: 1 - (7 + r) / 8r = {100 * (1 - (7 + r) / (8 * r)):.0f} %")
beside(saved, SKIPPING_8.value, "%")

# %% [markdown]
# The formula says 44 %, and the paper measured 38 %. "About twice as long" is a rounded number: if a
# step takes 1.8 times as long, the formula says 39 %.

# %% [markdown]
# ## Servers
#
# Before all-reduce, trainings used parameter servers (lab 08): each server keeps some tensors. A
# worker sends gradients to the servers, and gets the parameters back. The authors of CM-DARE counted
# the steps a second, with one server and 1 to 8 workers on P100s (Li, Walls and Guo, ICDCS 2020).
#
# **Predict:** with more workers, at which rate do the curves stop rising? Does this rate depend on
# the bytes or on the number of tensors?

# %%
from ddpkit.data.published import SERVER_RATES

plt.figure(figsize=(6, 3))
for each in SERVER_RATES:
    label = f"{each.model}: {each.tensors} tensors, {each.bytes / 1e6:.0f} MB"
    plt.plot(range(1, 9), each.one_server, "o-", label=label)
plt.xlabel("workers"), plt.ylabel("steps a second"), plt.yscale("log")
plt.yticks([2, 5, 10, 20, 50, 100], [2, 5, 10, 20, 50, 100])
plt.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# Each curve stops rising at the limit of the server. At the highest rate, the server is always busy,
# so 1 / rate is the server's time for one step. We fit two numbers to the times of these four
# models: a time for each tensor, and a time for each byte.

# %%
busy = [1 / max(each.one_server) for each in SERVER_RATES]
both = fit([(each.tensors, each.bytes) for each in SERVER_RATES], busy)
bytes_alone = fit([(each.bytes,) for each in SERVER_RATES], busy)
print(f"{both[0] * 1e3:.3f} ms for each tensor, {1e-6 / both[1]:.0f} MB/s")
for each, s in zip(SERVER_RATES, busy):
    model = both[0] * each.tensors + both[1] * each.bytes
    alone = bytes_alone[0] * each.bytes
    print(f"{each.model:12} {model / s - 1:+4.0%}, bytes alone {alone / s - 1:+5.0%}")

# %% [markdown]
# **Notice:** these published measurements confirm the rule of lab 05: each tensor takes a
# fixed time, even a very small tensor.
#
# A second server should have doubled the rates, but doubled none of the four rates. A tensor stays
# whole on one server, so the *busiest* server sets the rate.

# %% [markdown]
# ## Your turn: how many servers?
#
# Zou and others (2017) give a lower bound: take the bytes that all workers send to the servers and
# get back, and divide by the bytes that one link moves in the time of a step. With whole tensors, a
# cluster may need more servers.


# %% exercise="servers"
def servers(sizes, workers, seconds, bandwidth) -> int | None:
    """Return the smallest number of servers that hides communication behind `seconds` of compute.

    Every worker sends each gradient to the server of its tensor, and gets the parameter back, over
    this server's link of `bandwidth` bytes/s: in and out one after the other. Each tensor is whole
    on one server: give out the largest tensor first, each to the server with the fewest bytes so
    far. Return None if even one server per tensor is not enough.
    """
    # BEGIN SOLUTION
    for count in range(1, len(sizes) + 1):
        load = [0] * count
        for size in sorted(sizes, reverse=True):
            load[load.index(min(load))] += size
        if 2 * workers * max(load) / bandwidth <= seconds:
            return count
    return None
    # END SOLUTION


# %% check="servers"
check(servers)

# %%
for workers in (4, 8, 16, 32, 64):
    count = servers(big.sizes, workers, seconds=0.1, bandwidth=12.5e9)
    print(f"ResNet-50 on 100 Gbit/s, {workers:2} workers; servers needed: {count}")

# %% [markdown]
# ## How large a batch?
#
# More ranks make a larger batch, and with a larger batch, fewer steps are enough. How many fewer? A
# gradient of few samples is mostly noise. An average over n gradients has less noise, until hardly
# any noise is left. McCandlish and others (2018) give the batch size for this limit: the **noise
# scale**
#
# $$B = \frac{\mathrm{tr}\,\Sigma}{|G|^2}, \qquad \text{steps} = S_{\min}\left(1 + \frac{B}{\text{batch}}\right)$$

# %% [markdown]
# Data parallelism gives both inputs of the noise scale for free: the gradient of each rank, and the
# average of all gradients.


# %% exercise="noise_scale"
def noise_scale(squares, mean_square, batch) -> float:
    """Return the gradient noise scale, in samples.

    `squares[r]` is the squared length of rank r's gradient over its own `batch` samples.
    `mean_square` is the squared length of the average of all ranks' gradients. Return math.inf if
    the noise covers the signal: if the found |G|² is not above 0.

    With noise v in a rank's gradient: the mean of `squares` is |G|² + v, and `mean_square` is
    |G|² + v/n. The answer is batch · v / |G|².
    """
    # BEGIN SOLUTION
    n = len(squares)
    noise = (sum(squares) / n - mean_square) * n / (n - 1)
    signal = mean_square - noise / n
    return batch * noise / signal if signal > 0 else math.inf
    # END SOLUTION


# %% check="noise_scale"
check(noise_scale)

# %% [markdown]
# We train on the digits, with 64 images for each of four ranks. The noise scale of a single batch
# says little, so we average over 30 batches. **Predict:** does the noise scale grow or shrink while
# the model learns?


# %%
def digits_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def digits_gradient(model, images, labels):
    """Return all gradients of the mean loss as one vector."""
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def digits_step(model, vector, lr):
    """Take one step of SGD along a gradient that is one vector."""
    parameters = list(model.parameters())
    with torch.no_grad():
        for p, part in zip(parameters, vector.split([p.numel() for p in parameters])):
            p -= lr * part.view_as(p)


# %%
from ddpkit.data import load_digits

images, labels = map(torch.from_numpy, load_digits())
generator = torch.Generator().manual_seed(0)


def rank_gradients(model, ranks, batch):
    chosen = torch.randperm(len(images), generator=generator)[: ranks * batch].split(batch)
    return torch.stack([digits_gradient(model, images[part], labels[part]) for part in chosen])


# %%
model, scales = digits_model(), []
for k in range(121):
    if k % 40 == 0:
        found = [rank_gradients(model, 4, 64) for _ in range(30)]
        squares = torch.stack([g.square().sum(1) for g in found]).mean(0).tolist()
        mean_square = torch.stack([g.mean(0).square().sum() for g in found]).mean().item()
        scales.append(noise_scale(squares, mean_square, 64))
        print(f"after {k:3} steps: {scales[-1]:.0f} samples")
    digits_step(model, rank_gradients(model, 1, 64)[0], lr=0.5)

# %% [markdown]
# **Notice:** the noise scale is larger at the end than at the beginning: the gradient of a
# nearly right model is small, but the noise stays. (Between two lines the number may also fall,
# because 30 batches give only a rough estimate.) As the noise scale changes, the best batch size
# changes too. Far below the noise scale, twice as many ranks need half as many steps. Far above the
# noise scale, additional ranks save hardly any steps.

# %% [markdown]
# ## Money
#
# Cheap servers are sometimes *revoked*: the provider takes a server back. A synchronous job then
# stops, and all ranks go back to the last checkpoint. Let λ be the failures per hour. A stretch of T
# hours that must pass without a failure takes $(e^{\lambda T} - 1)/\lambda$ hours on average, and fails
# $e^{\lambda T} - 1$ times.

# %% [markdown]
# **Predict:** a job has ten hours of work and saves a checkpoint each hour. Each server is revoked
# once in 20 hours. How many hours does the job take with 4 servers, and how many with 32 servers?


# %% exercise="expected_hours"
def expected_hours(hours, ranks, rate, save, interval, restart) -> float:
    """Return the average time of a synchronous job of `hours` on servers that may be revoked.

    All times are in hours. Each server is revoked `rate` times an hour on average, at random
    moments (0: never). A checkpoint takes `save`, and comes after each `interval` of work, also at
    the end; there are hours / interval such stretches, not rounded: a part of a stretch counts as a
    part. A stretch of work and its checkpoint counts only if no server is revoked meanwhile;
    otherwise all ranks go back, wait for `restart`, and repeat the stretch.
    """
    # BEGIN SOLUTION
    danger, stretch = ranks * rate, interval + save
    if danger == 0:
        return hours / interval * stretch
    return hours / interval * (1 / danger + restart) * math.expm1(danger * stretch)
    # END SOLUTION


# %% check="expected_hours"
check(expected_hours)

# %%
intervals = [0.02 * 1.2**k for k in range(24)]
plt.figure(figsize=(6, 3))
for ranks in (4, 8, 16, 32):
    took = [expected_hours(10, ranks, 0.05, 5 / 3600, every, 2 / 60) for every in intervals]
    plt.semilogx([every * 60 for every in intervals], took, label=f"{ranks} servers")
plt.xlabel("minutes between checkpoints"), plt.ylabel("hours for 10 h of work")
plt.xticks([2, 5, 10, 20, 60], [2, 5, 10, 20, 60]), plt.minorticks_off()
plt.ylim(9, 20), plt.legend()
plt.show()
for ranks in (4, 32):
    print(f"{ranks} servers: {expected_hours(10, ranks, 0.05, 5 / 3600, 1, 2 / 60):.1f} h, hourly")

# %% [markdown]
# **Notice:** each curve has a best interval, and the best interval is shorter for more
# servers: about $\sqrt{2 \cdot \text{save} / \lambda}$ (Young, 1974). Large synchronous clusters
# lose the most time to failures.

# %% [markdown]
# ## Your turn: the plan
#
# Now put all parts together. Your model gives the time of a step for a number of ranks and a batch;
# the noise scale gives the number of steps; every rank costs money by the hour.


# %% exercise="plan"
def plan(step_seconds, noise, least_steps, worlds, batches, dollars, deadline):
    """Return the cheapest (ranks, batch per rank) that is done in `deadline` hours, or None.

    `worlds` and `batches` list the ranks and batches to try. `step_seconds(ranks, batch)` is the
    model of a step. A training with n ranks and b samples per rank takes
    least_steps · (1 + noise / (n·b)) steps. A rank costs `dollars` an hour. A plan of exactly
    `deadline` hours is in time. Of equally cheap plans, return the fastest.
    """
    # BEGIN SOLUTION
    found = []
    for n in worlds:
        for b in batches:
            steps = least_steps * (1 + noise / (n * b))
            hours = steps * step_seconds(n, b) / 3600
            if hours <= deadline:
                found.append((n * dollars * hours, hours, (n, b)))
    return min(found)[2] if found else None
    # END SOLUTION


# %% check="plan"
check(plan)


# %% [markdown]
# Take a ResNet-50 with 3 ms a sample, on 100 Gbit/s, with a noise scale of 1,000 samples and at
# least 40,000 steps. **Predict:** is the cheapest cluster large or small? Is the cheapest cluster
# larger if there is a deadline of 5 hours?


# %%
def resnet_seconds(n, batch):
    samples = grown(big, batch * 0.003 / 0.1)
    return step_time(samples, 25, cheapest_price(n, 10e-6, 12.5e9))


worlds, batches = [2**k for k in range(11)], [8, 16, 32, 64, 128]
for deadline in (1000, 20, 5, 2, 1, 0.8):
    found = plan(resnet_seconds, 1000, 40_000, worlds, batches, dollars=2, deadline=deadline)
    if found is None:
        print(f"in {deadline:4} h: none")
        continue
    n, batch = found
    hours = 40_000 * (1 + 1000 / (n * batch)) * resnet_seconds(n, batch) / 3600
    print(
        f"in {deadline:4} h: {n:4} × {batch:3} images, {hours:5.1f} h, {2 * n * hours:5.0f} dollars"
    )

# %% [markdown]
# **Notice:** the cheapest cluster is small and slow, and the fastest cluster is large and
# expensive. The deadline decides which cluster is right. Far below the noise scale, a shorter
# training costs hardly more; near and above the noise scale, each saved hour costs more than the
# previous hour.

# %% [markdown]
# The next cell shows all plans at once, with three sliders. **Predict:** with a noise scale of 100
# samples, does the deadline of 5 hours raise the price more or less than above?

# %%
from ddpkit.view import explore_plan

explore_plan(resnet_seconds, 1000, worlds=worlds, batches=batches, deadline=5)

# %% [markdown]
# **Notice:** each cell of the picture is one of your plans, with hours and dollars. `plan`
# finds the cell with the frame. From left to right, the time falls and the price hardly rises, until
# ranks × batch comes near the noise scale. With a noise scale of 100 samples, one rank needs only
# 3.6 hours, so the deadline does not raise the price.

# %% [markdown]
# ## Your card
#
# After this lab, you know six numbers of a machine and a model:

# %%
print(f"latency {alpha * 1e6:.0f} us, bandwidth {8 / per_byte / 1e9:.2f} Gbit/s")
print(f"a step: {fixed * 1000:.1f} ms + {per_sample * 1e6:.0f} us a sample; best cap {best} MB")
print(f"noise scale of the digits at the end: {scales[-1]:.0f} samples")

# %% [markdown]
# ## Optional: which sum of gradients?
#
# If n gradients agree, their mean makes a step as long as the step of one rank. The sum of n equal
# gradients makes a step n times as long, so the training may diverge. **Adasum** (Maleki and others,
# MLSys 2021) combines both ways: Adasum adds gradients at right angles, and averages gradients that
# agree.


# %% exercise="adasum"
def adasum(a, b):
    """Combine two gradients: add them if they are at right angles, average them if they agree.

    The result is (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b. If one gradient is all zeros, the
    result is the other gradient.
    """
    # BEGIN SOLUTION
    if not a.any() or not b.any():
        return a + b
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
    # END SOLUTION


# %% check="adasum"
check(adasum)

# %% [markdown]
# With n ranks, Adasum combines gradients in pairs, by lab 03's butterfly. Here 32 parts of a batch
# stand for 32 ranks, in one process. The learning rate fits the batch of 16 of a *single* rank, and
# stays unchanged.
#
# **Predict:** after the same number of images, which loss is lowest: with the mean, the sum or
# Adasum?


# %%
def adasum_of_all(gradients):
    """Combine all gradients in a tree: pairs, then pairs of pairs, as in the butterfly."""
    while len(gradients) > 1:
        gradients = [adasum(a, b) for a, b in zip(gradients[::2], gradients[1::2])]
    return gradients[0]


ways = {"mean": lambda g: g.mean(0), "sum": lambda g: g.sum(0), "Adasum": adasum_of_all}
for name, combined in ways.items():
    model = digits_model()
    for _ in range(35):  # uses each image about ten times
        digits_step(model, combined(rank_gradients(model, 32, 16)), lr=0.1)
    loss = torch.nn.functional.cross_entropy(model(images), labels).item()
    print(f"{name:7} loss {loss:.2f}")

# %% [markdown]
# **Notice:** the mean takes small steps, and the sum takes too large steps. Adasum needs no
# new learning rate: Adasum averages while gradients agree, and adds when noise makes gradients
# differ.

# %% [markdown]
# ## Optional: audit a table
#
# HetSeq trains BERT on unequal GPUs (Ding, Botzer and Weninger, IAAI 2021). HetSeq's README has a
# table of steps, seconds per step, and days. **Predict:** do the three columns fit together?

# %%
from ddpkit.data.published import HETSEQ_ROWS

first = HETSEQ_ROWS[0]
for row in HETSEQ_ROWS:
    days = row.steps * row.step_s / 86400
    own = first.steps * first.step_s / (row.steps * row.step_s)
    print(f"{4 * row.nodes:2} GPUs: {row.days} days said, {days:.2f} by its steps;", end="  ")
    print(f"speed-up {row.speed_up} said, {own:.2f} by its steps; loss {row.loss}")

# %% [markdown]
# **Notice:** the first row contradicts itself, and all speed-ups rest on the first row.
# Also, the training loss grew with the batch: the speed-ups do not show this growth.

# %% [markdown]
# ## The way out
#
# This program measures latency and bandwidth of your own cluster in plain torch. Save it in
# `link.py`, and run `torchrun --nproc-per-node 4 link.py`, on one host or on several hosts:
#
# ```python
# import time, torch, torch.distributed as dist
#
# dist.init_process_group("gloo")  # "nccl" on GPUs
# n, rows = dist.get_world_size(), []
# for size in (10**3, 10**4, 10**5, 10**6):
#     x, times = torch.ones(size), []
#     for _ in range(7):
#         dist.barrier()
#         start = time.perf_counter()
#         dist.all_reduce(x)
#         times.append(time.perf_counter() - start)
#     rows.append((2 * (n - 1), 2 * (n - 1) / n * 4 * size, sorted(times)[3]))
# table = torch.tensor(rows, dtype=torch.float64)
# scaled = table[:, :2] / table[:, 2:]
# alpha, per_byte = torch.linalg.lstsq(scaled, torch.ones(len(rows), 1).double())[0].flatten()
# if dist.get_rank() == 0:
#     print(f"latency {alpha * 1e6:.0f} us, bandwidth {1e-9 / per_byte:.2f} GB/s")
# dist.destroy_process_group()
# ```

# %% [markdown]
# ## In this lab you have
#
# - computed the time of a step in seven lines, and seen that 16 processes take exactly this time;
# - described a machine by two numbers, and the parameter servers of a paper by two more numbers;
# - let the model choose a cap, servers, a batch, and a cluster, and compute the price;
# - checked the percentages of a paper with the model.

# %% [markdown]
# **Next:** take your own training step. Record the step (`run.trace.save("run.json.gz")`), and run
# `ddpkit predict run.json.gz` and `ddpkit tune run.json.gz`. Write a prediction down; then run your
# training, and look at the ratio.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 09_scaling.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
