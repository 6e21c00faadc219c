# ---
# jupyter:
#   ddpkit:
#     builds: buckets of gradients, gradients as views of them, and the best cap
#     minutes: 60
#     needs: lab 04
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
# # 05 · Bucketing
#
# **You will build** buckets: gradients that lie side by side in memory, so that one all-reduce
# averages many of them. And you will choose how large a bucket should be.
#
# **You need** lab 04, where the gradients of all ranks were averaged. About 60 minutes.

# %%
import torch, torch.distributed as dist, matplotlib.pyplot as plt
from ddpkit import Cluster, beside, check, show

# %% [markdown]
# ## Many small or few large?
#
# A million gradients have to be averaged by two ranks, over a link of 1 Gbit/s with a latency of
# 200 µs. We may do it in one all-reduce, or in many, each of a part.
#
# `machine=` says how fast a rank computes: like one core of a laptop. Its operations are counted, not
# measured, so a run takes the same time whatever else your laptop does.

# %%
link = "1 Gbit/s, 200 us"
slow = Cluster(2, link=link, machine="laptop core")
parts = [4_000, 16_000, 62_500, 250_000, 1_000_000]


def time_in_parts():
    from time import perf_counter

    def once(part):
        numbers = torch.ones(1_000_000)
        dist.barrier()
        start = perf_counter()
        for piece in numbers.split(part):
            dist.all_reduce(piece)
        return perf_counter() - start

    return [once(part) for part in parts]


# %% [markdown]
# **Predict:** the numbers are 4 MB; the wire takes 32 ms for them, however they are cut. An
# all-reduce of two ranks needs two messages, one after the other, and so two latencies. How long do
# 250 all-reduces of 4,000 numbers take? Write it in place of the dots.

# %% guess="many_ms"
many_ms = 32 + 250 * 2 * 0.2  # your prediction, in ms

# %%
seconds = slow.run(time_in_parts).results[0]
for part, s in zip(parts, seconds):
    print(f"{part:9,} numbers in each of {1_000_000 // part:3} all-reduces: {s * 1000:4.0f} ms")
beside(many_ms, seconds[0] * 1000, "ms")

# %%
plt.style.use("ddpkit.view.plain")
count = [1_000_000 / part for part in parts]
plt.figure(figsize=(6, 3))
plt.semilogx(parts, [32 + n * 0.4 for n in count], "--", label="32 ms + 0.4 ms for each")
plt.semilogx(parts, [s * 1000 for s in seconds], "o", label="measured")
plt.xlabel("numbers in an all-reduce"), plt.ylabel("ms for a million"), plt.legend()
plt.show()

# %% [markdown]
# **What to notice:** each all-reduce costs its latency, here 2 · 200 µs, whatever its size. The smaller
# the parts, the more of the time is latency. Figure 2 of
# [the DDP paper](https://arxiv.org/abs/2006.15704) (Li and others, 2020) shows the same on GPUs.
#
# Many parameters of a model are small: every bias, every norm. So put gradients together.

# %% [markdown]
# ## Your turn: flatten and unflatten
#
# `flatten` copies tensors one after the other into one long tensor. `unflatten` cuts a long tensor
# up again. Its pieces must be *views*: a view is no copy. It shares the memory of the long tensor, so
# who changes the one changes the other.


# %% exercise="flatten"
def flatten(tensors) -> torch.Tensor:
    """One new 1-D tensor with the elements of all `tensors`, in order and in their dtype.

    The tensors may have any shapes and strides, and have the same dtype.
    """
    # BEGIN SOLUTION
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
    # END SOLUTION


# %% check="flatten"
check(flatten)


# %% exercise="unflatten"
def unflatten(flat: torch.Tensor, tensors) -> list[torch.Tensor]:
    """Views of the 1-D tensor `flat`, in order: one for each of `tensors`, of its shape.

    A list or tuple. `tensors` only tell the shapes, and stay unchanged.
    """
    # BEGIN SOLUTION
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors)]
    # END SOLUTION


# %% check="unflatten"
check(unflatten)

# %% [markdown]
# ## One all-reduce for all
#
# A deep, narrow model: 48 layers with a weight and a bias each, so 96 parameters, most of them
# small.
#
# **Predict:** how many milliseconds does one flat all-reduce save over one for each parameter?

# %% guess="saved_ms"
saved_ms = 95 * 2 * 0.2  # your prediction, in ms


# %%
def deep_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(48)))


# %%
def one_for_each(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)


def one_for_all(gradients):
    flat = flatten(gradients)
    dist.all_reduce(flat)
    for gradient, summed in zip(gradients, unflatten(flat, gradients)):
        gradient.copy_(summed)


# %%
def sum_gradients(all_reduce):
    all_reduce([torch.ones_like(p) for p in deep_model().parameters()])


ms = {}
for way in (one_for_each, one_for_all):
    run = slow.run(sum_gradients, way)
    ms[way] = run.trace.breakdown()[0].comm_ns / 1e6
    times = run.traffic.collectives(0)["all_reduce"].times
    print(f"{way.__name__:12} all-reduces: {times:2}, ms: {ms[way]:.0f}")
beside(saved_ms, ms[one_for_each] - ms[one_for_all], "ms saved")

# %% [markdown]
# **What to notice:** the latency of 95 all-reduces, 0.4 ms each, is saved. But a flat all-reduce has
# to wait until the *last* gradient is there, and by then backward is over. Nothing is left to compute
# while the bytes move.
#
# Backward makes gradients one by one, from the last layer to the first. So put those together that are
# made at about the same time, into a **bucket**.

# %% [markdown]
# ## Your turn: which gradient goes into which bucket?
#
# Walk over the parameters in *reverse* order, as backward does. Put each into the open bucket. When a
# bucket has reached the cap, or is over it, close it and open the next one. That is torch's rule.
#
# A bucket holds one dtype on one device: keep an open bucket for each kind.

# %% [markdown]
# A cap is counted as torch counts it: 1 MB is $2^{20}$ bytes there, and 1,000,000 everywhere else.
#
# **Predict:** the cap is 0.1 MB, which is 104,858 bytes; a layer has 66,048 bytes. How many buckets do
# the 48 layers make?

# %% guess="bucket_count"
bucket_count = 24  # your prediction


# %% exercise="assign_buckets"
def assign_buckets(parameters, bucket_cap_mb: float, first_bucket_mb: float | None = None):
    """A list of buckets, in the order in which they closed; a bucket is a list of parameters.

    `parameters`, perhaps an iterator, are put in from the last to the first, each into the
    open bucket of the same kind: the same dtype and device. A bucket closes when its bytes reach
    `bucket_cap_mb` (1 MB is 2**20 bytes); the first of each kind already at `first_bucket_mb`, if
    that is given. What is open at the end closes then, the one that was opened first before the
    others. Tuples are as good as lists.
    """
    # BEGIN SOLUTION
    first = bucket_cap_mb if first_bucket_mb is None else first_bucket_mb
    closed, open_buckets, caps = [], {}, {}
    for p in reversed(list(parameters)):
        kind = (p.dtype, p.device)
        bucket = open_buckets.setdefault(kind, [])
        bucket.append(p)
        if sum(q.numel() * q.element_size() for q in bucket) >= caps.get(kind, first) * 2**20:
            closed.append(open_buckets.pop(kind))
            caps[kind] = bucket_cap_mb
    return closed + list(open_buckets.values())
    # END SOLUTION


# %% check="assign_buckets"
check(assign_buckets)

# %%
for cap in (0.1, 0.5, 2, 100):
    buckets = assign_buckets(deep_model().parameters(), cap)
    print(f"cap {cap:5} MB: {len(buckets):2} buckets, of", [len(b) for b in buckets][:6], "...")
beside(bucket_count, len(assign_buckets(deep_model().parameters(), 0.1)), "buckets")

# %% [markdown]
# ## Gradients that live in a bucket
#
# `flatten` copies every gradient, and the sums are copied back. Memory holds all gradients twice.
#
# Better: let each `p.grad` *be* a view of the bucket. Backward then adds right into it, and the
# all-reduce leaves its result where the optimizer looks for it. torch calls this
# [`gradient_as_bucket_view`](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html).
#
# But `zero_grad()` sets `p.grad = None`, and the next backward puts a new tensor there, outside the
# bucket. So somebody has to **collect** it into the bucket again.


# %% exercise="GradientBuckets"
class GradientBuckets:
    """Flat tensors, one for each bucket, and the gradients as views of them.

    `parameters[i]`  the parameters of bucket i
    `flat[i]`        its 1-D tensor, as long as they are together, of their dtype and device
    `views[i]`       views of `flat[i]`, one for each of these parameters

    The constructor collects gradients of before.
    """

    def __init__(self, buckets):
        # BEGIN SOLUTION
        self.parameters = [list(bucket) for bucket in buckets]
        self.flat = [flatten([torch.zeros_like(p) for p in bucket]) for bucket in self.parameters]
        self.views = [unflatten(flat, b) for flat, b in zip(self.flat, self.parameters)]
        for i in range(len(self.flat)):
            self.collect(i)
        # END SOLUTION

    def collect(self, i: int) -> None:
        """Make each gradient of bucket i the view that belongs to it, and keep its values.

        A gradient that is None stays None, and counts as zeros in `flat[i]`. Other buckets are
        left alone.
        """
        # BEGIN SOLUTION
        for p, view in zip(self.parameters[i], self.views[i]):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():
                view.copy_(p.grad)
                p.grad = view
        # END SOLUTION


# %% check="GradientBuckets"
check(GradientBuckets)


# %% [markdown]
# **Predict:** the model has 3.2 MB of parameters. How much memory do gradients and flat tensors
# take together, first as copies, then as views?

# %% guess="copies_mb"
copies_mb = 2 * 3.17  # your prediction, in MB: as copies


# %%
def megabytes(tensors):
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values()) / 1e6


# %%
model = deep_model()
model(torch.randn(4, 128)).sum().backward()
gradients = [p.grad for p in model.parameters()]
print(f"a flat copy beside them: {(copied := megabytes([*gradients, flatten(gradients)])):.1f} MB")
del gradients
buckets = GradientBuckets(assign_buckets(model.parameters(), bucket_cap_mb=1))
gradients = [p.grad for p in model.parameters()]
print(f"views of {len(buckets.flat)} buckets:      {megabytes([*gradients, *buckets.flat]):.1f} MB")
beside(copies_mb, copied, "MB, as copies")

# %% [markdown]
# ## How large should a bucket be?
#
# Torch's `DistributedDataParallel` averages each bucket as soon as its gradients are ready, while
# backward computes the next ones. Lab 06 builds that. Here we use it, to see what the cap does.


# %%
def train(cap, steps=8):
    from torch.nn.parallel import DistributedDataParallel as DDP

    model = DDP(deep_model(), bucket_cap_mb=cap, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(128, 128)).square().mean().backward()
        optimizer.step()


# %%
from ddpkit.view import explore

small = slow.run(train, 0.05)
explore(small, step=6)

# %% [markdown]
# **What to notice:** while backward still computes, the small all-reduces already move. Their bars
# overlap, for a bar begins when its all-reduce is started, and many are started before the link is free
# for them. The link takes one after the other. But there are so many that their latencies alone take
# longer than backward: the last of them are *exposed*. (Click into the picture and turn the wheel to
# zoom; point at a bar for its bytes.)

# %% [markdown]
# **Predict:** with one bucket for all, will the step be shorter? Which cap is best?

# %%
large = slow.run(train, 100)
show(large, step=6)

# %% [markdown]
# **What to notice:** one latency, and no overlap at all. The best cap lies somewhere between.

# %% [markdown]
# ## Your turn: the best cap
#
# Predict it. From one recorded step we know when each gradient is ready, and its bytes. From the
# link we know what an all-reduce of $B$ bytes takes on $n$ ranks, with latency $\alpha$ and bandwidth
# $\beta$:
#
# $$2(n - 1)\,\alpha + 2\,\frac{n - 1}{n} \cdot \frac{B}{\beta}$$
#
# It starts when its bucket has closed *and* the all-reduce before it is done. With the best cap, the
# last all-reduce is done earlier than with any other.


# %% exercise="best_cap"
def best_cap(caps, ready, sizes, latency, bandwidth, world_size: int) -> float:
    """The cap in MB, one of `caps`, with which the last all-reduce is done first.

    A bucket closes when its bytes reach the cap, of which 1 MB is 2**20 bytes, and at the end.
    `ready[i]` is when gradient i is ready, in seconds, and `sizes[i]` its bytes; both are in the
    order of readiness. `latency` is in seconds, `bandwidth` in bytes per second. Of caps that are
    equally good, it is the first.
    """

    # BEGIN SOLUTION
    def done(cap):
        free, filled = 0.0, 0
        for i, (at, size) in enumerate(zip(ready, sizes)):
            filled += size
            if filled >= cap * 2**20 or i == len(sizes) - 1:
                wire = 2 * (world_size - 1) / world_size * filled / bandwidth
                free = max(free, at) + 2 * (world_size - 1) * latency + wire
                filled = 0
        return free

    return min(caps, key=done)
    # END SOLUTION


# %% check="best_cap"
check(best_cap)

# %%
from ddpkit.simulate import Step, sweep

caps = [0.03, 0.06, 0.12, 0.25, 0.5, 1, 2, 4]
step = Step.typical(large.trace)
ready = [gradient.ready_ns / 1e9 for gradient in step.gradients]
sizes = [gradient.bytes for gradient in step.gradients]
best = best_cap(caps, ready, sizes, latency=200e-6, bandwidth=125e6, world_size=2)
print(f"best of these caps, as predicted: {best} MB")

# %% [markdown]
# Is that true? The kit's simulator plays the recorded step with every cap (`sweep`), and we measure
# every cap on the emulated link.
#
# **Predict:** what shape has the curve of the step's time over the cap?


# %%
def typical_ms(run):
    from statistics import median

    windows = [run.trace.step(k).window_of(0) for k in range(3, run.trace.steps)]
    return median(end - start for start, end in windows) / 1e6


measured = [typical_ms(slow.run(train, cap)) for cap in caps]
predicted = [ns / 1e6 for _, ns in sweep(step, caps, link, world_size=2)]

# %%
plt.figure(figsize=(6, 3))
plt.semilogx(caps, predicted, "--", label="predicted")
plt.semilogx(caps, measured, "o", label="measured")
plt.xticks(caps, caps), plt.xlabel("bucket_cap_mb"), plt.ylabel("ms a step")
plt.ylim(0), plt.minorticks_off(), plt.legend()
plt.show()
chosen = measured[caps.index(best)]
print(f"best_cap's choice, {best} MB: {chosen:.0f} ms; the best measured: {min(measured):.0f} ms")

# %% [markdown]
# **What to notice:** a U. On the left latency is paid too often, on the right the bytes wait too long
# before they are sent. The two points on the left are equal: with a cap of 0.03 and with one of 0.06 a
# layer alone fills a bucket. The floor is wide: a cap that is twice too large costs little. Torch's 25 MB are
# made for models of hundreds of MB on fast links.

# %% [markdown]
# **In words:** which cap is best here, and how many ms does a step take with it? Why does a cap of 0.03 MB cost more, and why does one of 4 MB?

# %% [markdown]
# *Your words:*

# %% [markdown]
# Move the sliders: what does the best cap do when latency grows, when compute gets faster, or with
# more ranks?

# %%
from ddpkit.view import explore_buckets

explore_buckets(large, cap_mb=best)

# %% [markdown]
# ## The way out
#
# Torch's class takes the cap as an argument. A communication hook sees each bucket. In `caps.py`,
# for `torchrun --nproc-per-node 2 caps.py`:
#
# ```python
# import torch, torch.distributed as dist
# from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
#
# dist.init_process_group("gloo")
# def counted(group, bucket):
#     if dist.get_rank() == 0:
#         print(f"bucket {bucket.index()}: {bucket.buffer().numel()} numbers")
#     return allreduce_hook(group, bucket)
#
# layers = [torch.nn.Linear(64, 64) for _ in range(8)]
# model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.05)
# model.register_comm_hook(None, counted)
# for step in range(2):
#     model(torch.randn(16, 64)).sum().backward()
# dist.destroy_process_group()
# ```
#
# In the first step it prints one bucket of 33,280 numbers: torch's first bucket may hold 1 MB until torch
# has seen a backward. In the second step it prints two of 16,640, which is four layers in each.

# %% [markdown]
# ## In this lab you have
#
# - measured that an all-reduce costs its latency, whatever its size;
# - put gradients into buckets, as torch does, and made them views: one copy in memory;
# - predicted the best size of a bucket from a link and one recorded step, and measured it.
#
# **Next:** lab 06 sends a bucket on its way while backward makes the next one.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 05_bucketing.ipynb` in a terminal. It
# goes the grader's way, with inputs of its own, and says what the grader will.
