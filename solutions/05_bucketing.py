# ---
# jupyter:
#   ddpkit:
#     builds: buckets of gradients, gradients as views of the buckets, and the best cap
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
# averages many gradients. Then you will choose the best size of a bucket.
#
# **You need** lab 04, in which the ranks averaged their gradients. About 60 minutes.

# %%
import torch, torch.distributed as dist, matplotlib.pyplot as plt
from ddpkit import Cluster, beside, check, show

# %% [markdown]
# ## Many small or few large?
#
# Two ranks must average a million gradients, over a link of 1 Gbit/s with a latency of 200 µs. The
# ranks may use one all-reduce, or many, one for each part of the gradients.
#
# With `machine=`, each rank computes at the speed of one laptop core. ddpkit counts the operations
# and does not measure their time, so a run takes the same time even if your laptop is busy.

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
# **Predict:** the numbers have 4 MB, which take 32 ms at the bandwidth of the link, no matter how we
# cut them. An all-reduce of two ranks needs two messages, one after the other, and so two latencies.
# How long do 250 all-reduces of 4,000 numbers take? Write the time in place of the dots.

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
# **Notice:** an all-reduce of any size costs its latencies, here 2 · 200 µs. The smaller the
# parts, the larger is the share of the latencies in the whole time. Figure 2 of [the DDP
# paper](https://arxiv.org/abs/2006.15704) (Li and others, 2020) shows the same effect on GPUs.
#
# Many parameters of a model are small, for example every bias and every norm. So put gradients
# together.

# %% [markdown]
# ## Your turn: flatten and unflatten
#
# `flatten` copies tensors one after the other into one long tensor. `unflatten` cuts a long tensor
# into pieces again. These pieces must be *views*. A view is not a copy: the view shares the memory of
# the long tensor, so a change of one changes the other too.


# %% exercise="flatten"
def flatten(tensors) -> torch.Tensor:
    """Return one new 1-D tensor with the elements of all `tensors`, in order and in their dtype.

    The tensors may have any shapes and strides, and have the same dtype.
    """
    # BEGIN SOLUTION
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
    # END SOLUTION


# %% check="flatten"
check(flatten)


# %% exercise="unflatten"
def unflatten(flat: torch.Tensor, tensors) -> list[torch.Tensor]:
    """Cut the 1-D tensor `flat` into views: one for each of `tensors`, with this tensor's shape.

    Returns a list or tuple, in order. `tensors` only give the shapes, and stay unchanged.
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
# The next model is deep and narrow: 48 layers, each with a weight and a bias. So the model has 96
# parameters, half of them very small.
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
# **Notice:** one flat all-reduce saves the latencies of 95 all-reduces, 0.4 ms each. But a
# flat all-reduce has to wait for the *last* gradient, and then backward is over. So the ranks have
# nothing to compute while the bytes move.
#
# Backward makes gradients one by one, from the last layer to the first. So put gradients that are
# ready at about the same time together into a **bucket**.

# %% [markdown]
# ## Your turn: which gradient goes into which bucket?
#
# Walk over the parameters in *reverse* order, as backward does. Put each parameter into the open
# bucket. When a bucket has reached the cap, or exceeds the cap, close this bucket and open the next
# one. This is torch's rule.
#
# A bucket holds parameters of one dtype on one device: keep an open bucket for each pair of dtype and
# device.

# %% [markdown]
# For a cap, 1 MB is $2^{20}$ bytes, as in torch. Everywhere else in the labs, 1 MB is 1,000,000
# bytes.
#
# **Predict:** the cap is 0.1 MB, which is 104,858 bytes; a layer has 66,048 bytes. How many buckets do
# the 48 layers make?

# %% guess="bucket_count"
bucket_count = 24  # your prediction


# %% exercise="assign_buckets"
def assign_buckets(parameters, bucket_cap_mb: float, first_bucket_mb: float | None = None):
    """Return a list of buckets, in the order in which they close; a bucket is a list of parameters.

    Put the parameters in from the last to the first, each into the open bucket of its dtype and
    device. A bucket closes when its bytes reach `bucket_cap_mb` (1 MB is 2**20 bytes). If
    `first_bucket_mb` is given, it is the cap of the first bucket of each dtype and device. At the
    end, the open buckets close, in the order in which they were opened. `parameters` may be an
    iterator. Tuples are as good as lists.
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
# `flatten` copies every gradient, and after the all-reduce each sum must be copied back. So the
# memory holds all gradients twice.
#
# It is better if each `p.grad` *is* a view of the bucket's long tensor. Then backward adds directly
# into the bucket, and after the all-reduce, the optimizer finds the result in `p.grad`. torch calls
# this
# [`gradient_as_bucket_view`](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html).

# %% [markdown]
# But `zero_grad()` sets `p.grad = None`, and the next backward sets `p.grad` to a new tensor outside
# the bucket. So `GradientBuckets` must **collect** this gradient: copy the new tensor into the
# bucket, and make `p.grad` a view again.


# %% exercise="GradientBuckets"
class GradientBuckets:
    """Flat tensors, one for each bucket, and the gradients as views of these tensors.

    `parameters[i]` the parameters of bucket i `flat[i]` the 1-D tensor with all elements of bucket
    i, of their dtype and device `views[i]` views of `flat[i]`, one for each parameter of bucket i

    The constructor collects the gradients that exist already.
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
        """Replace each gradient of bucket i by its view in the bucket, with the gradient's values.

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
# **Predict:** the model has 3.2 MB of parameters. How much memory do the gradients and the flat
# tensors take together, first if the flat tensors are copies, then if the gradients are views?

# %% guess="copies_mb"
copies_mb = 2 * 3.17  # your prediction, in MB, if they are copies


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
# torch's `DistributedDataParallel` averages each bucket as soon as the bucket's gradients are ready,
# while backward computes the next gradients. Lab 06 builds such a class. Here we use torch's class,
# to see the effect of the cap.


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
# **Notice:** the first all-reduces already run while backward still computes. The bars of the
# all-reduces overlap, because a bar begins when a rank starts the all-reduce, and the link carries
# only one all-reduce at a time: most all-reduces wait for the link. The latencies of these many small
# all-reduces alone take longer than backward, so the last all-reduces are *exposed*. (Click into the
# picture and turn the wheel to zoom; point at a bar for its bytes.)

# %% [markdown]
# **Predict:** will the step be shorter with one bucket for all gradients? Which cap is best?

# %%
large = slow.run(train, 100)
show(large, step=6)

# %% [markdown]
# **Notice:** with one bucket, there is only one all-reduce, so the latency is short, but no
# communication overlaps with compute. The best cap lies somewhere between the two.

# %% [markdown]
# ## Your turn: the best cap
#
# Predict the best cap. One recorded step shows each gradient's bytes, and when the gradient is ready.
# The latency $\alpha$ and the bandwidth $\beta$ of the link give the time of an all-reduce of $B$
# bytes on $n$ ranks:
#
# $$2(n - 1)\,\alpha + 2\,\frac{n - 1}{n} \cdot \frac{B}{\beta}$$
#
# An all-reduce starts when its bucket has closed *and* the previous all-reduce is done. With the best
# cap, the last all-reduce is done earlier than with any other cap.


# %% exercise="best_cap"
def best_cap(caps, ready, sizes, latency, bandwidth, world_size: int) -> float:
    """Return the cap, one of `caps` in MB, with which the last all-reduce is done earliest.

    A bucket closes when its bytes reach the cap (1 MB is 2**20 bytes), and at the end. Gradient i
    is ready after `ready[i]` seconds, and has `sizes[i]` bytes; both lists are in the order of
    readiness. `latency` is in seconds, `bandwidth` in bytes per second. If several caps are equally
    good, return the first of these caps.
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
# Is this prediction true? ddpkit's simulator computes the recorded step with every cap (`sweep`), and
# we measure a step with every cap on the emulated link.
#
# **Predict:** draw the time of a step over the cap. Which shape does the curve have?


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
# **Notice:** the curve is a U. On the left, too many all-reduces take their latencies; on the
# right, the bytes wait too long before a rank sends them. The two leftmost points are equal, because
# one layer fills a bucket of 0.03 MB and a bucket of 0.06 MB. The bottom of the U is wide: twice the
# best cap costs little time. torch's default of 25 MB is for models of hundreds of MB on fast links.

# %% [markdown]
# **In words:** which cap is best here, and how many ms does a step take with this cap? Why does a step with a cap of 0.03 MB take longer, and why does a step with a cap of 4 MB?

# %% [markdown]
# *Your words:*

# %% [markdown]
# Move the sliders: how does the best cap change if the latency grows, if compute gets faster, or if
# there are more ranks?

# %%
from ddpkit.view import explore_buckets

explore_buckets(large, cap_mb=best)

# %% [markdown]
# ## The way out
#
# torch's class takes the cap as an argument, and a communication hook sees each bucket. Save this in
# a file `caps.py`, and run `torchrun --nproc-per-node 2 caps.py`:
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
# In the first step, the hook prints one bucket of 33,280 numbers: until torch has seen a backward,
# one bucket holds all gradients, without a cap. In the second step, the hook prints two buckets of
# 16,640 numbers, four layers in each.

# %% [markdown]
# ## In this lab you have
#
# - measured that an all-reduce of any size costs its latencies;
# - put gradients into buckets, as torch does, and made the gradients views, so that the memory holds
#   each gradient once;
# - predicted the best cap from a link and one recorded step, and checked the prediction by
#   measurements.
#
# **Next:** lab 06 sends each bucket while backward makes the gradients of the next.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 05_bucketing.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
