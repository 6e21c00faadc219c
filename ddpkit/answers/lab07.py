# mypy: ignore-errors
"""Answers of lab 07 (ddp).

Generated from solutions/07_ddp.py by `make release`; do not edit.
"""

from datetime import timedelta

import torch
import torch.distributed as dist

from ddpkit.answers import get

flatten = get("flatten")
gradients_of = get("gradients_of")
ring = get("ring")
unflatten = get("unflatten")


def fp16_hook(state, bucket):
    """Start to replace the bucket's gradients by their mean, sent as float16.

    `state` is the process group of the averaging ranks (None: all ranks). Returns, without waiting,
    a Future of the mean: a tensor of the buffer's dtype and shape. Divides before it sums. (torch
    wants the second parameter to be called `bucket`.)
    """
    flat = bucket.buffer()
    half = (flat / dist.get_world_size(state)).half()
    work = dist.all_reduce(half, group=state, async_op=True)
    return work.get_future().then(lambda future: flat.copy_(future.value()[0]))


def orthonormal(matrix):
    """Return orthonormal columns that span the same space as the columns of `matrix`."""
    return torch.linalg.qr(matrix).Q


def mean_of(tensors):
    """Return the means of these tensors over the ranks, as a list, with one all-reduce."""
    flat = flatten(tensors)
    dist.all_reduce(flat)
    return unflatten(flat / dist.get_world_size(), tensors)


def done(value):
    """Return a Future that already has its value."""
    future = torch.futures.Future()
    future.set_result(value)
    return future


def powersgd_hook(state, bucket):
    """Replace each gradient by its mean, as the product of two thin matrices.

    A gradient of two or more dimensions is a matrix M: first dimension × the rest. Q has r =
    `state.rank` columns (the rank of a matrix, not a process), fewer if M is smaller. The first Q
    is random, and the same on all ranks. Keep the Q' of a bucket in `state.q[bucket.index()]` for
    the next step, and the unsent part of the gradients in `state.error[bucket.index()]` for the
    next gradients. If `state.error` is empty, add nothing. Average gradients of fewer dimensions
    unchanged. Every tensor has the dtype of the gradients. A bucket takes at most 3 collectives,
    for P, Q', the gradients of fewer dimensions and, if you like, rank 0's first Q, and sends
    nothing else. The hook may wait, and returns a Future. (`bucket.gradients()` lists views of
    `bucket.buffer()`.)
    """
    i, flat = bucket.index(), bucket.buffer()
    flat += state.error.get(i, 0)
    wanted = flat.clone()
    vectors = [g for g in bucket.gradients() if g.dim() < 2]
    matrices = [g.view(len(g), -1) for g in bucket.gradients() if g.dim() >= 2]
    if i not in state.q:
        seed = torch.Generator().manual_seed(i)
        sizes = [(m.shape[1], min(state.rank, *m.shape)) for m in matrices]
        state.q[i] = [torch.randn(size, generator=seed).to(flat) for size in sizes]
    p = [m @ orthonormal(q) for m, q in zip(matrices, state.q[i])]
    means = mean_of(p + vectors)
    p = [orthonormal(mean) for mean in means[: len(p)]]
    state.q[i] = mean_of([m.T @ each for m, each in zip(matrices, p)]) if p else []
    for m, each, q in zip(matrices, p, state.q[i]):
        m.copy_(each @ q.T)
    for vector, mean in zip(vectors, means[len(p) :]):
        vector.copy_(mean)
    state.error[i] = wanted - flat
    return done(flat)


def train_uneven(model, optimizer, batches, loss_of) -> list[int]:
    """Train on all batches of all ranks; ranks may have different numbers of batches.

    In each step the gradient is the mean over the ranks with a batch; ranks without a batch take
    part with zeros, and take the same optimizer step. All ranks end together. Returns the number of
    ranks with a batch, for each step, as a list of int. `batches` may be a generator, and a batch
    may be a tensor. The loss is `loss_of(model, batch)`. All ranks begin with the same `model`.
    """
    batches, counts = iter(batches), []
    while True:
        optimizer.zero_grad()
        batch = next(batches, None)
        if batch is not None:
            loss_of(model, batch).backward()
        gradients = gradients_of(model)
        has = torch.tensor([float(batch is not None)]).to(gradients[0])
        flat = flatten([has, *gradients])
        dist.all_reduce(flat)
        count, *sums = unflatten(flat, [has, *gradients])
        if count == 0:
            return counts
        for gradient, total in zip(gradients, sums):
            gradient.copy_(total / count)
        optimizer.step()
        counts.append(int(count))


def monitored_barrier(store, name: str, rank: int, world_size: int, timeout: float) -> None:
    """Return when all ranks have called monitored_barrier with the same name.

    If ranks are missing after `timeout` seconds, raise RuntimeError on every waiting rank, with the
    list of all missing ranks in the message, in any order: "ranks [1, 3] …". `store` is any store
    of c10d. Later calls have new names.
    """
    keys = [f"{name}/{each}" for each in range(world_size)]
    store.set(keys[rank], "here")
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:
        missing = [each for each, key in enumerate(keys) if not store.check([key])]
        raise RuntimeError(f"ranks {missing} did not come to {name} in {timeout} s") from None


def make_backend(all_reduce):
    """Return a process group of all ranks with the all-reduce `all_reduce(tensors, options)`."""

    class Done(dist.Work):
        def __init__(self, tensors):
            super().__init__()
            self.future = done(tensors)

        def wait(self, timeout=None):
            return True

        def get_future(self):
            return self.future

    return dist.new_group(backend=registered(all_reduce, Done))


def registered(all_reduce, Done):
    """Register a backend: this all-reduce, and the default group's other calls. Return its name."""
    world = dist.group.WORLD

    class Group(dist.ProcessGroup):
        def allreduce(self, tensors, options):
            all_reduce(tensors, options)
            return Done(tensors)

        def broadcast(self, tensors, options):
            return world.broadcast(tensors, options)

        def allgather(self, outputs, inputs, options):
            return world.allgather(outputs, inputs, options)

    def make(store, rank, size, timeout):
        return Group(rank, size)

    dist.Backend.register_backend("ring", make, devices=["cpu"])
    return "ring"


def ring_all_reduce(tensors, options) -> None:
    """Replace each of `tensors` by the sum over the ranks; c10d calls this for an all-reduce.

    `ring` of lab 03 returns the sum in a new tensor: copy the sum into the tensor of the list.
    Unless `options.reduceOp` is dist.ReduceOp.SUM, raise NotImplementedError before any tensor
    changes.
    """
    if options.reduceOp != dist.ReduceOp.SUM:
        raise NotImplementedError(f"the ring sums, and this is {options.reduceOp}")
    for tensor in tensors:
        tensor.copy_(ring(tensor))


def pair_groups() -> list:
    """Return the groups of two in which this rank gossips: group i for binary digit i.

    There are 2^k ranks. All ranks call `dist.new_group` for all groups, in the same order, even for
    groups that they are not in; a rank keeps only its own groups.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    groups = []
    for i in range(world_size.bit_length() - 1):
        for first in range(world_size):
            second = first ^ 2**i
            if first < second:
                group = dist.new_group([first, second])
                if rank in (first, second):
                    groups.append(group)
    return groups


def gossip_hook(state, bucket):
    """Start to replace the bucket by the mean of this rank's bucket and its partner's bucket.

    The partner is in the group `state.pairs[state.step % len(state.pairs)]`, for all buckets of a
    step; `state.step` grows by one with the last bucket. Returns a Future, without waiting.
    """
    pair = state.pairs[state.step % len(state.pairs)]
    state.step += bucket.is_last()
    flat = bucket.buffer().div_(2)
    work = dist.all_reduce(flat, group=pair, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
