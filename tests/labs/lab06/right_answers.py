"""Right answers to lab 06, different from the solution."""

import contextlib
import functools
from collections import Counter, deque
from unittest import mock

import torch
import torch.distributed as dist

from ddpkit import answers
from ddpkit.answers import lab06
from tests.labs.answers import right

# average


@right("average")
def a_future(bucket):
    bucket.buffer().mul_(1 / dist.get_world_size())
    return dist.all_reduce(bucket.buffer(), dist.ReduceOp.SUM, async_op=True).get_future()


@right("average")
def with_a_slash(bucket):
    flat = bucket.buffer()
    flat /= dist.get_world_size()
    return dist.all_reduce(tensor=flat, group=None, async_op=1)


# Reducer


@right("Reducer")
class ByCounters(lab06.Reducer):
    """A reducer that counts ready gradients, and starts buckets in a bounded loop."""

    def begin(self):
        self.counted, self.next = Counter(), 0
        super().begin()

    def ready(self, parameter):
        self.order += [parameter]
        place = self.bucket_of[parameter]
        self.counted[place] += 1
        self.missing[place] -= {parameter}
        for i in range(self.next, len(self.buckets.flat)):
            if self.counted[i] < len(self.buckets.parameters[i]):
                break
            self.buckets.collect(i)
            self.works += [self.start(lab06.grad_bucket(self.buckets, i))]
            self.next = i + 1

    def wait(self):
        for i, work in enumerate(self.works):
            new = work.wait()
            if torch.is_tensor(new):
                self.buckets.flat[i][:] = new


@right("Reducer")
class LastFirst(lab06.Reducer):
    """A reducer that starts buckets by recursion, and pops the works, the newest first."""

    def ready(self, parameter):
        self.order.append(parameter)
        self.missing[self.bucket_of[parameter]].remove(parameter)
        self.start_next()

    def start_next(self):
        i = len(self.works)
        if i < len(self.missing) and len(self.missing[i]) == 0:
            self.buckets.collect(i)
            self.works.append(self.start(lab06.grad_bucket(self.buckets, i)))
            self.start_next()

    def wait(self):
        while self.works:
            result = self.works.pop().wait()
            if isinstance(result, torch.Tensor):
                self.buckets.flat[len(self.works)].copy_(result)


# rebuilt_buckets


@right("rebuilt_buckets")
def order_as_an_object(parameters, ready, bucket_cap_mb, first_bucket_mb=None):
    box = [ready]
    dist.broadcast_object_list(box, src=0)
    backwards = [parameters[i] for i in box[0]][::-1]
    return answers.get("assign_buckets")(iter(backwards), bucket_cap_mb, first_bucket_mb)


@right("rebuilt_buckets")
def from_all_gathered(parameters, ready, bucket_cap_mb, first_bucket_mb=None):
    orders = [torch.empty(len(ready), dtype=torch.int32) for _ in range(dist.get_world_size())]
    dist.all_gather(orders, torch.tensor(ready, dtype=torch.int32))
    order = list(parameters)
    order = [order[i] for i in orders[0].flip(0)]
    return answers.get("assign_buckets")(order, bucket_cap_mb, first_bucket_mb)


# unused_parameters


@right("unused_parameters")
def in_breadth(output, parameters):
    """Find the leaves by hand, and visit the nodes breadth-first."""
    waiting, seen, used = deque([output]), set(), []
    while waiting:
        one = waiting.popleft()
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
        elif isinstance(one, torch.Tensor):
            used.append(one)
            waiting.append(one.grad_fn)
        elif hasattr(one, "next_functions") and one not in seen:
            seen.add(one)
            used.append(getattr(one, "variable", None))
            waiting.extend(node for node, _ in one.next_functions)
    return [p for p in parameters if not any(p is each for each in used)]


@right("unused_parameters")
def asks_autograd(output, parameters):
    """Ask autograd: a backward that leaves the gradients unchanged."""
    leaves = [t for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, torch.Tensor)]
    leaves = [t for t in leaves if t.requires_grad]
    if not leaves:
        return parameters
    ones = [torch.zeros_like(t) for t in leaves]
    found = torch.autograd.grad(leaves, parameters, ones, retain_graph=True, allow_unused=True)
    return [p for p, g in zip(parameters, found, strict=True) if g is None]


# no_sync


@right("no_sync")
class ByMethods:
    def __init__(self, ddp):
        self.ddp = ddp

    def __enter__(self):
        self.before, self.ddp.require_backward_grad_sync = (
            self.ddp.require_backward_grad_sync,
            False,
        )
        return self.ddp

    def __exit__(self, kind, error, traceback):
        self.ddp.require_backward_grad_sync = self.before


@right("no_sync")
def by_mock(ddp):
    return mock.patch.object(ddp, "require_backward_grad_sync", False)


@right("no_sync")
@contextlib.contextmanager
def by_exit_stack(ddp):
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, ddp, "require_backward_grad_sync", ddp.require_backward_grad_sync)
        ddp.require_backward_grad_sync = False
        yield stack


# DistributedDataParallel

_Given = lab06.DistributedDataParallel


@right("DistributedDataParallel")
class ByAccumulators(_Given):
    """A DDP with hooks on autograd's accumulation nodes, which older versions of torch need."""

    def __init__(self, module, **options):
        with mock.patch.object(torch.Tensor, "register_post_accumulate_grad_hook"):
            super().__init__(module, **options)
        self.nodes = []
        with torch.enable_grad():
            for p in self.trained:
                node = p.view_as(p).grad_fn.next_functions[0][0]
                node.register_hook(lambda *_, p=p: self.gradient_ready(p))
                self.nodes.append(node)  # keeps the node, and its hook, alive

    def gradient_ready(self, parameter):
        if self.expected > 0:
            if len(self.reducer.order) == 0:
                lab06.queue_callback(lambda: self.finish())
                [self.reducer.ready(p) for p in self.unused]
            self.reducer.ready(parameter)

    def finish(self):
        self.expected = self.expected - 1
        self.reducer.wait()
        if sum(map(len, self.reducer.missing)):
            raise self.missing_gradients()
        if self.find_unused_parameters:
            lab06.share_unused(self.reducer.buckets)
        if self.first_order is None:
            self.first_order = list(self.reducer.order)
        self.reducer.begin()


@right("DistributedDataParallel")
class FinishesByAPartial(_Given):
    """A DDP with a hook that tells the reducer first and queues then.

    The order is kept as a copy.
    """

    def gradient_ready(self, parameter):
        if self.expected:
            first = not self.reducer.order
            for p in [*(self.unused if first else []), parameter]:
                self.reducer.ready(p)
            if first:
                lab06.queue_callback(functools.partial(type(self).finish, self))

    def finish(self):
        reducer, self.expected = self.reducer, self.expected - 1
        reducer.wait()
        if set().union(*reducer.missing):
            raise self.missing_gradients()
        if self.find_unused_parameters:
            lab06.share_unused(reducer.buckets)
        elif self.first_order is None:
            self.first_order = [*reducer.order]
        reducer.begin()
