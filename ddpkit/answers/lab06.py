# mypy: ignore-errors
"""Answers of lab 06 (overlap).

Generated from solutions/06_overlap.py by `make release`; do not edit.
"""

from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from ddpkit.answers import get

GradientBuckets = get("GradientBuckets")
assign_buckets = get("assign_buckets")
broadcast_parameters = get("broadcast_parameters")
flatten = get("flatten")
unflatten = get("unflatten")


def grad_bucket(buckets, i):
    """Return bucket `i` for a communication hook, with the methods of torch's GradBucket."""
    return SimpleNamespace(
        index=lambda: i,
        buffer=lambda: buckets.flat[i],
        gradients=lambda: buckets.views[i],
        parameters=lambda: buckets.parameters[i],
        is_last=lambda: i == len(buckets.flat) - 1,
    )


def average(bucket):
    """Start one all_reduce that replaces `bucket.buffer()` by the mean over all ranks.

    Returns a Work without waiting; after the `wait()` of this Work, the buffer holds the mean.
    Divide first and then sum, as torch does: a sum of many large float16 numbers could be too
    large.
    """
    flat = bucket.buffer()
    flat.div_(dist.get_world_size())
    return dist.all_reduce(flat, async_op=True)


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
        self.order.append(parameter)
        self.missing[self.bucket_of[parameter]].discard(parameter)
        while len(self.works) < len(self.missing) and not self.missing[len(self.works)]:
            i = len(self.works)
            self.buckets.collect(i)
            self.works.append(self.start(grad_bucket(self.buckets, i)))

    def wait(self) -> None:
        """Wait, after backward, for each average. If a Work returns a tensor, copy it to the
        bucket.
        """
        for flat, work in zip(self.buckets.flat, self.works):
            result = work.wait()
            if isinstance(result, torch.Tensor):
                flat.copy_(result)


def rebuilt_buckets(parameters, ready, bucket_cap_mb: float, first_bucket_mb: float | None = None):
    """Return the buckets in the order in which gradients became ready on rank 0, on every rank.

    `ready` lists indices of `parameters`, in the order in which the gradients became ready on this
    rank. Rank 0 may send its order in any way that keeps every index exact. For the caps, see
    `assign_buckets`.
    """
    order = torch.tensor(ready, device=parameters[0].device)
    dist.broadcast(order, src=0)
    forward_order = [parameters[i] for i in reversed(order.tolist())]
    return assign_buckets(forward_order, bucket_cap_mb, first_bucket_mb)


def unused_parameters(output, parameters) -> list:
    """List the `parameters` that the graph of `output` does not reach, in their order.

    All `parameters` require a gradient. Leave the graph and every .grad as they are, so that the
    model's backward can still run. The graph may be deeper than Python's limit for nested calls. A
    tuple is as good as a list.

    `output` is the return value of the model: a tensor, or tensors in nested lists, tuples and
    dicts (`tree_leaves` lists all of these tensors). `output` may contain a parameter itself.
    """
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


@contextmanager
def no_sync(ddp):
    """Inside `with no_sync(ddp):` the flag `ddp.require_backward_grad_sync` is False.

    Afterwards, the flag has its old value again, even if an exception was raised inside.
    """
    before = ddp.require_backward_grad_sync
    ddp.require_backward_grad_sync = False
    try:
        yield
    finally:
        ddp.require_backward_grad_sync = before


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
        broadcast_parameters(module)
        self.reducer = Reducer(GradientBuckets(assign_buckets(self.trained, *self.caps)))
        for p in self.trained:
            p.register_post_accumulate_grad_hook(self.gradient_ready)

    @torch.no_grad()  # even if backward makes a graph (create_graph=True)
    def gradient_ready(self, parameter):
        """The hook: tell the reducer; do nothing if this backward is not `expected`.

        The first call in a backward also queues `finish`, and reports each parameter of `unused`
        as ready.
        """
        if self.expected and self.reducer.bucket_of[parameter] < len(self.reducer.works):
            raise RuntimeError("A gradient was ready twice in one backward, or after it was sent.")
        if not self.expected:
            return
        if not self.reducer.order:
            queue_callback(self.finish)
            for p in self.unused:
                self.reducer.ready(p)
        self.reducer.ready(parameter)

    def finish(self):
        """Backward is over: lower `expected`, wait, and raise an error if a gradient never came.

        Then share the gradients of unused parameters, store the first order, and let the reducer
        begin anew.
        """
        self.expected -= 1
        self.reducer.wait()
        if any(self.reducer.missing):
            raise self.missing_gradients()
        if self.find_unused_parameters:
            share_unused(self.reducer.buckets)
        if self.first_order is None:
            self.first_order = self.reducer.order
        self.reducer.begin()

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
