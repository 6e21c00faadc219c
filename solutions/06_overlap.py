# ---
# jupyter:
#   ddpkit:
#     builds: a `DistributedDataParallel` of your own, with hooks, overlap and `no_sync`
#     minutes: 90
#     needs: lab 05
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
# # 06 · Overlap
#
# **You will build** a `DistributedDataParallel` that sends gradients while backward still computes.
# Your class is as fast as torch's class, and gives the same gradients, bit for bit: on two ranks in
# every step, on more ranks from the second step on.
#
# **You need** labs 04 and 05. About 90 minutes.

# %%
import torch, torch.distributed as dist
from ddpkit import Cluster, beside, carry, check

# %%
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from torch.utils._pytree import tree_leaves

# %%
broadcast_parameters = carry("broadcast_parameters")
assign_buckets = carry("assign_buckets")
flatten = carry("flatten")
unflatten = carry("unflatten")
GradientBuckets = carry("GradientBuckets")
average_per_parameter = carry("average_per_parameter")
average_flat = carry("average_flat")

# %% [markdown]
# ## The model, and a step
#
# The model has 48 layers with 3.2 MB of parameters, and two ranks train the model on a link of 1
# Gbit/s. Between `backward()` and the optimizer, `average(model)` averages the gradients over the
# ranks. `average` is an argument, so we can compare several functions.


# %%
def deep_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(48)))


# %%
def train(average, steps=6):
    model = deep_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(1024, 128)).square().mean().backward()
        average(model)
        optimizer.step()


# %% [markdown]
# ## Three ways to average, after backward
#
# Lab 04 has built the first two ways: one all-reduce for each parameter, and one flat all-reduce for
# all parameters. The third way is one all-reduce for each bucket of 0.25 MB.


# %%
def average_bucketed(model):
    buckets = GradientBuckets(assign_buckets(model.parameters(), 0.25))
    for i, flat in enumerate(buckets.flat):
        buckets.collect(i)
        dist.all_reduce(flat.div_(dist.get_world_size()))


# %% [markdown]
# As in lab 05, each rank computes at the speed of one laptop core, and ddpkit counts the operations.
#
# **Predict:** 3.2 MB take 25 ms at the bandwidth of the link, and each all-reduce adds 0.4 ms of
# latency. The three ways need 96, 1 and 12 all-reduces. How long does each way communicate in a step?
# Write the times of the first way and of the third way in place of the dots.

# %% guess="naive_ms"
naive_ms = 25 + 96 * 0.4  # your prediction, in ms

# %% guess="bucketed_ms"
bucketed_ms = 25 + 12 * 0.4  # your prediction, in ms

# %%
from ddpkit.view import compare

slow = Cluster(2, link="1 Gbit/s, 200 us", machine="laptop core")
naive = slow.run(train, average_per_parameter)
flat = slow.run(train, average_flat)
bucketed = slow.run(train, average_bucketed)


# %%
def of_step(run, what):
    """Return the ms of rank 0's "comm" in step 4, of its "exposed" part, or of the whole "step"."""
    step = run.trace.step(4).breakdown()[0] if run.trace.steps else None  # None if skipped
    return getattr(step, f"{what}_ns") / 1e6 if step else None


compare(naive, flat, bucketed, labels=["naive", "flat", "bucketed"])
beside(naive_ms, of_step(naive, "comm"), "ms, naive")
beside(bucketed_ms, of_step(bucketed, "comm"), "ms, bucketed")

# %% [markdown]
# **Notice:** fewer all-reduces take less latency. But in all three ways, the communication
# comes after backward, so all of the communication is exposed. While the bytes move, the processors
# have nothing to do, and while backward runs, the link is idle.
#
# When half of backward is done, half of the buckets are complete. A rank could already send these
# buckets.

# %% [markdown]
# ## Your turn: start, and don't wait
#
# With `async_op=True`, an all-reduce returns at once. The returned object, a `Work`, has a method
# `wait()`.
#
# torch calls a function such as the one below a [*communication
# hook*](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html). The argument of the hook is a
# bucket, with the methods of torch's buckets: `bucket.buffer()` returns the bucket's flat tensor.


# %% tags=["answers"]
def grad_bucket(buckets, i):
    """Return bucket `i` for a communication hook, with the methods of torch's GradBucket."""
    return SimpleNamespace(
        index=lambda: i,
        buffer=lambda: buckets.flat[i],
        gradients=lambda: buckets.views[i],
        parameters=lambda: buckets.parameters[i],
        is_last=lambda: i == len(buckets.flat) - 1,
    )


# %% exercise="average"
def average(bucket):
    """Start one all_reduce that replaces `bucket.buffer()` by the mean over all ranks.

    Returns a Work without waiting; after the `wait()` of this Work, the buffer holds the mean.
    Divide first and then sum, as torch does: a sum of many large float16 numbers could be too
    large.
    """
    # BEGIN SOLUTION
    flat = bucket.buffer()
    flat.div_(dist.get_world_size())
    return dist.all_reduce(flat, async_op=True)
    # END SOLUTION


# %% check="average"
check(average)

# %% [markdown]
# ## Your turn: the reducer
#
# torch can call a function of yours each time a gradient is ready: after
# `p.register_post_accumulate_grad_hook(f)`, `backward()` calls `f(p)` as soon as the gradient of `p`
# is ready.
#
# So count the ready gradients of each bucket. When the last gradient of bucket `i` is ready,
# `collect` the bucket and start the average with `self.start(grad_bucket(self.buckets, i))`. After
# backward, wait once for each started average.

# %% [markdown]
# There is one more rule: bucket 1 never starts before bucket 0, even if bucket 1 is complete first.
# The part "Why in order?" below gives the reason.


# %% exercise="Reducer"
class Reducer:
    """Averages each bucket as soon as it is complete, in order, while backward runs.

    `buckets` is a `GradientBuckets`. `start(bucket)` starts an average, as `average` does; for
    bucket i, its argument is `grad_bucket(buckets, i)`.
    """

    def __init__(self, buckets, start=average):
        self.buckets, self.start = buckets, start
        self.bucket_of = {p: i for i, bucket in enumerate(buckets.parameters) for p in bucket}
        self.begin()

    def begin(self):
        """Prepare for a backward: every gradient is missing, and no bucket has started."""
        self.order = []  # the parameters, as their gradients became ready
        self.missing = [set(bucket) for bucket in self.buckets.parameters]
        self.works = []  # one for each started bucket: the first len(works) buckets

    def ready(self, parameter) -> None:
        """The hook: the gradient of `parameter` is ready. Start each bucket that may start now."""
        # BEGIN SOLUTION
        self.order.append(parameter)
        self.missing[self.bucket_of[parameter]].discard(parameter)
        while len(self.works) < len(self.missing) and not self.missing[len(self.works)]:
            i = len(self.works)
            self.buckets.collect(i)
            self.works.append(self.start(grad_bucket(self.buckets, i)))
        # END SOLUTION

    def wait(self) -> None:
        """Wait, after backward, for each average. If a Work returns a tensor, copy it to the
        bucket.
        """
        # BEGIN SOLUTION
        for flat, work in zip(self.buckets.flat, self.works):
            result = work.wait()
            if isinstance(result, torch.Tensor):
                flat.copy_(result)
        # END SOLUTION


# %% [markdown]
# The check prints the order of events. In this list, g2 means "gradient 2 is ready", s0 means "the
# all-reduce of bucket 0 starts", | means "backward is over", and w0 means "the reducer waits for
# bucket 0".

# %% check="Reducer"
check(Reducer)

# %% [markdown]
# **Predict:** the training below overlaps communication with backward. The ranks send the same bytes
# as in the bucketed training, in the same number of all-reduces. How many milliseconds of the
# communication will still be exposed?

# %% guess="exposed_ms"
exposed_ms = 25 / 12 + 0.4  # your prediction, in ms


# %%
def train_overlapped(steps=6):
    model = deep_model()
    reducer = Reducer(GradientBuckets(assign_buckets(model.parameters(), 0.25)))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(reducer.ready)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad(), reducer.begin()
        model(torch.randn(1024, 128)).square().mean().backward()
        reducer.wait()
        optimizer.step()


# %%
overlapped = slow.run(train_overlapped)
compare(naive, bucketed, overlapped, labels=["naive", "bucketed", "overlapped"])
beside(exposed_ms, of_step(overlapped, "exposed"), "ms exposed")

# %% [markdown]
# **Notice:** a bucket moves while backward makes the gradients of the next buckets. Little
# more than the last bucket is still exposed: while the last bucket moves, backward is over and the
# ranks compute nothing. So small buckets are good here: a small last bucket moves quickly.

# %% [markdown]
# **In words:** the bucketed and the overlapped run send the same bytes in the same number of all-reduces. Why is a step of the overlapped run shorter, and by how many ms? What would happen if the link were ten times slower?

# %% [markdown]
# *Your words:*

# %% [markdown]
# ## Why in order?
#
# Collectives have no names. The first all-reduce of rank 0 meets the first of rank 1, and the second
# meets the second. Suppose that each rank starts a bucket as soon as the bucket is complete. On rank
# 0, bucket `a` is complete first; on rank 1, bucket `b` is complete first.
#
# **Predict:** the sum of `a` over both ranks should be 2, and the sum of `b` should be 20. Which sums
# does each rank get?


# %%
def eager():
    a, b = torch.full((3,), 1.0), torch.full((3,), 10.0)
    first, second = (a, b) if dist.get_rank() == 0 else (b, a)
    for work in [dist.all_reduce(x, async_op=True) for x in (first, second)]:
        work.wait()
    return {"a": a.tolist(), "b": b.tolist()}


for rank, result in enumerate(Cluster(2).run(eager).results):
    print(f"rank {rank}: {result}")

# %% [markdown]
# **Notice:** the ranks added gradients of one layer to gradients of another layer, without
# any error. If the buckets had different sizes, the run would fail. A failure would be better,
# because you would notice the mistake.

# %% [markdown]
# So all ranks must agree on one order: bucket 0, 1, 2. The best order is the order in which the
# gradients become ready. The reverse order of the parameters is only a guess: a model may use its
# layers in another order than the order of their definition.

# %% [markdown]
# ## Your turn: buckets in the order of the first backward
#
# torch records the order of the gradients in the first backward, and then assigns the buckets again,
# in this order ([the DDP paper](https://arxiv.org/abs/2006.15704), section 3.2). The ranks may have
# recorded different orders, so all ranks use the order of rank 0.
#
# `assign_buckets` walks over its parameters from the last to the first.


# %% exercise="rebuilt_buckets"
def rebuilt_buckets(parameters, ready, bucket_cap_mb: float, first_bucket_mb: float | None = None):
    """Return the buckets in the order in which gradients became ready on rank 0, on every rank.

    `ready` lists indices of `parameters`, in the order in which the gradients became ready on this
    rank. Rank 0 may send its order in any way that keeps every index exact. For the caps, see
    `assign_buckets`.
    """
    # BEGIN SOLUTION
    order = torch.tensor(ready, device=parameters[0].device)
    dist.broadcast(order, src=0)
    forward_order = [parameters[i] for i in reversed(order.tolist())]
    return assign_buckets(forward_order, bucket_cap_mb, first_bucket_mb)
    # END SOLUTION


# %% check="rebuilt_buckets"
check(rebuilt_buckets)

# %% [markdown]
# ## A gradient that never comes
#
# A model may leave out layers: experts, branches, layers dropped at random. Below, rank 1 does not
# use the second layer in this step.
#
# **Predict:** for which bucket does each rank wait?


# %%
class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x, both):
        return self.second(self.first(x)) if both else self.first(x)


# %%
def skip_a_layer():
    model = Branches()
    reducer = Reducer(GradientBuckets(assign_buckets(model.parameters(), 0.00001)))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(reducer.ready)
    model(torch.ones(1, 4), both=dist.get_rank() == 0).sum().backward()
    reducer.wait()


run = Cluster(2).run(skip_a_layer, expect_error=True)

# %% [markdown]
# Rank 1 starts no bucket: bucket 0 holds the bias of the second layer, and on rank 1 this bias never
# gets a gradient. Rank 0 waits for rank 1 forever.
#
# A rank can find the unused parameters before backward. Forward leaves a
# [*graph*](https://docs.pytorch.org/docs/stable/notes/autograd.html) of all operations that backward
# will visit. Walk this graph from the output: a parameter that the walk does not reach gets no
# gradient, and counts as ready from the start.

# %% [markdown]
# ## Your turn: walk the graph
#
# A tensor's `grad_fn` is a node of the graph. `node.next_functions` lists the nodes that backward
# visits after this node, as pairs (node or None, number). A node for a parameter has an attribute
# `variable`: the parameter.
#
# Many paths may lead to one node. Visit each node only once; otherwise a deep model takes forever.


# %% exercise="unused_parameters"
def unused_parameters(output, parameters) -> list:
    """List the `parameters` that the graph of `output` does not reach, in their order.

    All `parameters` require a gradient. Leave the graph and every .grad as they are, so that the
    model's backward can still run. The graph may be deeper than Python's limit for nested calls. A
    tuple is as good as a list.

    `output` is the return value of the model: a tensor, or tensors in nested lists, tuples and
    dicts (`tree_leaves` lists all of these tensors). `output` may contain a parameter itself.
    """
    # BEGIN SOLUTION
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    reached, seen = {id(tensor) for tensor in tensors}, set()
    nodes = [tensor.grad_fn for tensor in tensors]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            reached.add(id(getattr(node, "variable", None)))
            nodes += [before for before, _ in node.next_functions]
    return [p for p in parameters if id(p) not in reached]
    # END SOLUTION


# %% check="unused_parameters"
check(unused_parameters)

# %% [markdown]
# The gradient of an unused parameter is None, and counts as zeros in the bucket. After the average,
# there are two cases. If another rank has used the parameter, this rank must get the averaged
# gradient too. If *no* rank has used the parameter, the gradient must stay None: for an optimizer
# with momentum, zero is not the same as None.

# %% [markdown]
# So in each step, the ranks tell each other which parameters have a gradient. This additional
# all-reduce is the price of `find_unused_parameters=True`.


# %% tags=["answers"]
def share_unused(buckets):
    """Give a parameter without a gradient its view, if any rank has a gradient for it."""
    pairs = []  # (parameter, view), of all buckets
    for parameters, views in zip(buckets.parameters, buckets.views):
        pairs += zip(parameters, views)
    has = [p.grad is not None for p, _ in pairs]
    ranks = torch.tensor(has, dtype=torch.int32, device=pairs[0][0].device)
    dist.all_reduce(ranks)
    for (p, view), count in zip(pairs, ranks.tolist()):
        if p.grad is None and count:
            p.grad = view


# %% [markdown]
# ## Your turn: no communication
#
# Lab 01 summed the gradients of micro-batches. The ranks need to average only the sum, so every
# backward except the last should send nothing:
#
# ```python
# with ddp.no_sync():
#     ddp(x[0]).sum().backward()   # adds to p.grad, tells nobody
# ddp(x[1]).sum().backward()       # averages the sum
# ```
#
# For `no_sync`, torch's `DistributedDataParallel` has a flag, `require_backward_grad_sync`, and the
# forward reads the flag. Your class will have the same flag.


# %% exercise="no_sync"
@contextmanager
def no_sync(ddp):
    """Inside `with no_sync(ddp):` the flag `ddp.require_backward_grad_sync` is False.

    Afterwards, the flag has its old value again, even if an exception was raised inside.
    """
    # BEGIN SOLUTION
    before = ddp.require_backward_grad_sync
    ddp.require_backward_grad_sync = False
    try:
        yield
    finally:
        ddp.require_backward_grad_sync = before
    # END SOLUTION


# %% check="no_sync"
check(no_sync)

# %% [markdown]
# ## The whole class
#
# You have all parts. Now `DistributedDataParallel` wraps a model, and the training loop stays
# unchanged. Two things are missing:
#
# - **the start**: all ranks begin with rank 0's parameters and buffers. Buffers, such as the running
#   means of a batch norm, have no gradients; so rank 0 sends its buffers again before each forward;
# - **the end**: `backward()` itself has to wait for the averages. After `queue_callback(f)`, autograd
#   calls `f()` at the end of the current backward.


# %% tags=["answers"]
def queue_callback(f):
    """Call `f()` at the end of the current backward, before `backward()` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(f)


def sync_buffers(module):
    """Give all ranks rank 0's buffers, with one broadcast for each dtype."""
    for buffers in assign_buckets(module.buffers(), float("inf")):
        flat = flatten(buffers)
        dist.broadcast(flat, src=0)
        for buffer, new in zip(buffers, unflatten(flat, buffers)):
            buffer.detach().copy_(new)


# %% [markdown]
# ## Your turn: DistributedDataParallel
#
# You write three parts: the end of the constructor, the hook `gradient_ready`, and `finish`, which
# runs when backward is over. Forward is given. This is one step, with two parameters in a bucket:
#
# ```
# forward           expected += 1; the reducer begins
# backward
#   gradient 5 ->   gradient_ready: queue finish; reducer.ready
#   gradient 4 ->   gradient_ready: reducer.ready      bucket 0 starts
#   gradient 3 ->   gradient_ready: reducer.ready         | moves
#   gradient 2 ->   gradient_ready: reducer.ready      bucket 1 starts
#   gradient 1 ->   gradient_ready: reducer.ready         | moves
#   gradient 0 ->   gradient_ready: reducer.ready      bucket 2 starts
#   all done   ->   finish: expected -= 1; wait for all averages; the reducer begins anew
# optimizer.step    the gradients are means
# ```

# %% [markdown]
# Two attributes hold the state between the calls:
#
# - `expected`: the number of backwards that still have to average. Forward adds 1, or sets `expected`
#   to 0 inside `no_sync`. While `expected` is 0, the hook does nothing.
# - `first_order`: None until the first backward is over. Then `finish` stores the order in which the
#   gradients became ready. The next forward makes new buckets from this order, and sets `first_order`
#   to `[]`.
#
# (Your class may not use torch's class.)


# %% exercise="DistributedDataParallel"
class DistributedDataParallel(torch.nn.Module):
    """Wraps a module: its gradients are averaged over all ranks within `backward()`.

    Used like torch's class; torch's documentation explains the options. Raises RuntimeError if no
    parameter of the module requires a gradient.
    """

    def __init__(
        self, module, *, bucket_cap_mb=None, find_unused_parameters=False, broadcast_buffers=True
    ):
        super().__init__()
        self.module = module
        self.caps = (25, 1) if bucket_cap_mb is None else (bucket_cap_mb, bucket_cap_mb)
        self.find_unused_parameters = find_unused_parameters
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        self.expected = 0  # the number of backwards that still have to average
        self.unused = []  # parameters without a gradient in the next of these backwards
        self.first_order = [] if find_unused_parameters else None  # None: not seen yet; []: done
        self.trained = [p for p in module.parameters() if p.requires_grad]
        if not self.trained:
            raise RuntimeError(
                "DistributedDataParallel averages gradients, and no parameter of this module "
                "requires one: use the module without it."
            )
        # Give all ranks rank 0's start, make a Reducer with the first buckets, and set the hooks.
        # BEGIN SOLUTION
        broadcast_parameters(module)
        self.reducer = Reducer(GradientBuckets(assign_buckets(self.trained, *self.caps)))
        for p in self.trained:
            p.register_post_accumulate_grad_hook(self.gradient_ready)
        # END SOLUTION

    @torch.no_grad()  # even if backward makes a graph (create_graph=True)
    def gradient_ready(self, parameter):
        """The hook: tell the reducer; do nothing if this backward is not `expected`.

        The first call in a backward also queues `finish`, and reports each parameter of `unused`
        as ready.
        """
        if self.expected and self.reducer.bucket_of[parameter] < len(self.reducer.works):
            raise RuntimeError("A gradient was ready twice in one backward, or after it was sent.")
        # BEGIN SOLUTION
        if not self.expected:
            return
        if not self.reducer.order:
            queue_callback(self.finish)
            for p in self.unused:
                self.reducer.ready(p)
        self.reducer.ready(parameter)
        # END SOLUTION

    def finish(self):
        """Backward is over: lower `expected`, wait, and raise an error if a gradient never came.

        Then share the gradients of unused parameters, store the first order, and let the reducer
        begin anew.
        """
        # BEGIN SOLUTION
        self.expected -= 1
        self.reducer.wait()
        if any(self.reducer.missing):
            raise self.missing_gradients()
        if self.find_unused_parameters:
            share_unused(self.reducer.buckets)
        if self.first_order is None:
            self.first_order = self.reducer.order
        self.reducer.begin()
        # END SOLUTION

    def forward(self, *args, **kwargs):
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        if not self.require_backward_grad_sync:
            self.expected = 0
            return self.module(*args, **kwargs)
        self.expected += 1
        self.before_forward()
        output = self.module(*args, **kwargs)
        if self.find_unused_parameters:
            self.unused = unused_parameters(output, self.trained)
        return output

    def before_forward(self):
        self.reducer.begin()
        if self.broadcast_buffers:
            sync_buffers(self.module)
        if self.first_order:
            place = {p: i for i, p in enumerate(self.trained)}
            ready = [place[p] for p in self.first_order]
            buckets = GradientBuckets(rebuilt_buckets(self.trained, ready, *self.caps))
            self.reducer = Reducer(buckets, self.reducer.start)
            self.first_order = []

    def missing_gradients(self):
        missing = set().union(*self.reducer.missing)
        names = [name for name, p in self.module.named_parameters() if p in missing]
        return RuntimeError(
            f"backward() made no gradient for {', '.join(names)}: other ranks may wait for it. "
            "If the loss need not depend on it, wrap with find_unused_parameters=True."
        )

    def no_sync(self):
        return no_sync(self)

    def __setstate__(self, state):
        """Set the hooks again: a deep copy or a load from a file loses the hooks."""
        super().__setstate__(state)
        for p in self.trained:
            p.register_post_accumulate_grad_hook(self.gradient_ready)

    def register_comm_hook(self, state, hook):
        """Let `hook(state, bucket)` average. The hook returns a Work, or a Future of the mean."""
        self.reducer.start = partial(hook, state)


# %% check="DistributedDataParallel"
check(DistributedDataParallel)

# %% [markdown]
# ## Your class and torch's class
#
# Now the training loop is an ordinary loop; only the model is wrapped. The next cells run your class
# and torch's class with the same data, the same caps and the same link.
#
# **Predict:** divide the time of a step with your class by the time of a step with torch's class.
# How large is the quotient? Will the gradients be equal?

# %% guess="times_as_long"
times_as_long = 1  # your prediction


# %%
def train_wrapped(wrap, steps=8):
    model = wrap(deep_model(), bucket_cap_mb=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(1024, 128)).square().mean().backward()
        optimizer.step()
    return [p.grad for p in model.parameters()]


# %%
from torch.nn.parallel import DistributedDataParallel as TorchDDP

ours, torchs = slow.run(train_wrapped, DistributedDataParallel), slow.run(train_wrapped, TorchDDP)
compare(torchs, ours, labels=["torch's", "ours"])
if ours.trace.steps:
    beside(times_as_long, of_step(ours, "step") / of_step(torchs, "step"), "times")

# %%
pairs = zip(ours.results[0], torchs.results[0])
print("gradients after 8 steps, bit for bit:", all(torch.equal(a, b) for a, b in pairs))

# %% [markdown]
# **Notice:** the gradients are equal: with two ranks, $a + b$ equals $b + a$ to the last bit.
# With more ranks, gloo adds in an order that depends on the place of a gradient in its bucket. In the
# first backward, torch's buckets differ from your buckets, so the last digit of a gradient may
# differ. From the second backward on, torch has the same buckets as your class.

# %% [markdown]
# Your hundred lines work as torch's class does: they start each bucket early, start the buckets in
# order, and wait once. Look into a step (click, then turn the wheel to zoom):

# %%
from ddpkit.view import explore

explore(ours, step=4)

# %% [markdown]
# **Features that only torch's class has:** with your class, one backward has to reach all parameters
# that forward has used, while torch's class waits for the backward of a second loss. Your class
# supports checkpointing only with `use_reentrant=False`, and does not support sparse gradients,
# `process_group`, `static_graph` or `join`. Your `find_unused_parameters` does not see tensors in a
# dataclass.

# %% [markdown]
# **A feature that only your class has:** a forward under `no_grad` sends nothing, so one rank may
# evaluate the model alone. torch's class sends the buffers first, and would wait for the other ranks
# forever.

# %% [markdown]
# ## Micro-batches
#
# **Predict:** each step has four micro-batches. Three of the backwards are in `no_sync()`, and the
# last backward sends 12 buckets. How many all-reduces are there in two steps?

# %% guess="all_reduces"
all_reduces = 2 * 12  # your prediction


# %%
def micro_batches(silent):
    from contextlib import nullcontext

    model = DistributedDataParallel(deep_model(), bucket_cap_mb=0.25)
    for micro in range(8):
        with model.no_sync() if silent and micro % 4 < 3 else nullcontext():
            model(torch.randn(64, 128)).square().mean().backward()


for silent in (False, True):
    counts = slow.run(micro_batches, silent).traffic.collectives(0)
    print(f"with no_sync: {silent!s:5}  all-reduces: {counts['all_reduce'].times}")
beside(all_reduces, counts["all_reduce"].times, "all-reduces, with no_sync")

# %% [markdown]
# ## Fewer bytes
#
# torch has [communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) ready to
# use. The hook below sends float16 instead of float32. The hook was written for torch's class, but
# works with your class too, because your buckets have the same methods.


# %%
def train_half():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = DistributedDataParallel(deep_model(), bucket_cap_mb=0.25)
    model.register_comm_hook(dist.group.WORLD, fp16_compress_hook)
    model(torch.randn(64, 128)).square().mean().backward()


for run, steps in ((ours, 8), (slow.run(train_half), 1)):
    nbytes = run.traffic.collectives(0)["all_reduce"].bytes
    print(f"{nbytes / steps / 1e6:.1f} MB all-reduced in a step")

# %% [markdown]
# ## What if?
#
# ddpkit has recorded when each gradient was ready, and knows the latency and the bandwidth of the
# link. So ddpkit's simulator can compute your step under different conditions: unchanged, with one
# bucket, and on a slower network.
#
# **Predict:** backward takes 50 ms. When the first bucket starts, 11/12 of the backward remain. With
# a tenth of the bandwidth, the communication takes 258 ms. How many percent of the communication can
# be hidden?

# %% guess="hidden_per_cent"
hidden_per_cent = 100 * (11 / 12 * 50) / 258  # your prediction

# %%
from ddpkit.simulate import what_if

again = what_if(ours.trace)
one_bucket = what_if(ours.trace, bucket_cap_mb=100)
slower = what_if(ours.trace, link="100 Mbit/s, 200 us")
compare(again, one_bucket, slower, labels=["as it was", "one bucket", "100 Mbit/s"])
beside(hidden_per_cent, 100 * (slower.breakdown()[0].hidden or 0), "per cent hidden")

# %% [markdown]
# **Notice:** overlap can hide only as much communication as there is compute at the same
# time. To make the step still shorter, send fewer bytes, or compute more between two averages: with
# larger batches, or with `no_sync`.

# %% [markdown]
# ## A model of your own
#
# Now use your class with a model of your own. Replace the two functions below: let `my_model` return
# any module of PyTorch, and `my_batch` a batch for this module. (The forward of the module should
# draw no random numbers, so use no dropout: then both classes train the same model.)


# %%
def my_model():
    return torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)


def my_batch():
    return torch.randn(16, 32, 64)  # 16 texts of 32 words, each a vector of 64 numbers


# %%
def train_mine(wrap, steps=4):
    torch.manual_seed(0)
    model = wrap(my_model(), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())  # another batch on each rank
    for _ in range(steps):
        optimizer.zero_grad()
        model(my_batch()).square().mean().backward()
        optimizer.step()
    return [p.grad for p in model.parameters()]


# %%
mine, by_torch = slow.run(train_mine, DistributedDataParallel), slow.run(train_mine, TorchDDP)
compare(by_torch, mine, labels=["torch's", "yours"])
if mine.results[0] is not None:  # None under torchrun with too few ranks
    pairs = zip(mine.results[0], by_torch.results[0])
    print("equal gradients:", all(torch.allclose(a, b, atol=1e-6) for a, b in pairs))

# %% [markdown]
# ## The way out
#
# This script uses torch's class. Save the script in a file `train.py`. To use your class instead,
# run `ddpkit script 06`. This command writes a file with your answers to this lab. From this file,
# copy your class, and the functions and classes that your class calls.
#
# ```python
# import torch, torch.distributed as dist
# from torch.nn.parallel import DistributedDataParallel
#
# dist.init_process_group("gloo")
# layers = [torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)]
# model = DistributedDataParallel(torch.nn.Sequential(*layers))
# optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
# for step in range(4):
#     optimizer.zero_grad()
#     with model.no_sync():  # the first of two micro-batches
#         model(torch.randn(16, 1, 8, 8)).square().mean().backward()
#     model(torch.randn(16, 1, 8, 8)).square().mean().backward()
#     optimizer.step()
# print("rank", dist.get_rank(), sum(p.sum().item() for p in model.parameters()))
# dist.destroy_process_group()
# ```
#
# Then `ddpkit run -n 8 --link "10 Gbit/s, 50 us" train.py` prints where a step waits.

# %% [markdown]
# ## Look further
#
# The next picture shows all steps of a run, with a row for each rank, and the time that each rank has
# lost waiting for other ranks:

# %%
from ddpkit.view import heat_map

heat_map(mine)

# %% [markdown]
# `mine.trace.save("run.json.gz")` saves the trace of the run. In a terminal,
# `ddpkit trace run.json.gz` prints where the time of the run went. With `--export all.json`, the
# command writes a file for [Perfetto](https://ui.perfetto.dev), which runs in the browser: click
# "Open trace file". You can watch a long run while the model trains, if the training loop calls
# `watch.report(loss.item())`:
#
# ```python
# from ddpkit.view import live
#
# def train_watched(watch, steps=100):
#     model = DistributedDataParallel(deep_model(), bucket_cap_mb=0.25)
#     optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
#     for _ in range(steps):
#         optimizer.zero_grad()
#         loss = model(torch.randn(128, 128)).square().mean()
#         loss.backward()
#         optimizer.step()
#         watch.report(loss.item())
#
# with live() as watch:
#     slow.run(train_watched, watch)
# ```

# %% [markdown]
# ## In this lab you have
#
# - hidden all-reduces behind backward, bucket by bucket, in an order on which all ranks agree;
# - trained a model with unused parameters without a hang, by walking the model's graph;
# - built a `DistributedDataParallel` from these parts, with the gradients and the speed of torch's
#   class;
# - replayed a step on networks that you do not have;
# - trained a model of your own with your own class.
#
# **Next:** use your class in your own training script.

# %% [markdown]
# **Before you hand in:** save, and run `ddpkit check --as-graded 06_overlap.ipynb` in a terminal.
# This command checks your notebook in the same way as the grader, with other inputs, and shows the
# grader's result.
