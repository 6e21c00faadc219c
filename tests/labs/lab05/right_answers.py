"""Right answers to lab 05, different from the solution."""

import itertools

import numpy as np
import torch

from tests.labs.answers import right

# flatten and unflatten


@right("flatten")
def into_room(tensors):
    flat = tensors[0].new_empty(sum(t.numel() for t in tensors))
    at = 0
    for t in tensors:
        flat[at : at + t.numel()].copy_(t.flatten())
        at += t.numel()
    return flat


@right("flatten")
def by_ravel(tensors):
    return torch.concatenate([t.contiguous().view(-1) for t in tensors]).clone()


@right("flatten")
def by_vector_of(tensors):
    return torch.nn.utils.parameters_to_vector(t.contiguous() for t in tensors)


@right("unflatten")
def by_narrow(flat, tensors):
    ends = itertools.accumulate(t.numel() for t in tensors)
    return [
        flat.narrow(0, end - t.numel(), t.numel()).reshape(t.shape)
        for end, t in zip(ends, tensors, strict=True)
    ]


@right("unflatten")
def by_strides(flat, tensors):
    pieces, at = (), 0
    for t in tensors:
        steps = [int(np.prod(t.shape[i + 1 :])) for i in range(t.dim())]
        pieces += (flat.as_strided(t.shape, steps, at),)
        at += t.numel()
    return pieces


@right("unflatten")
def shrinking(flat, tensors):
    pieces = []
    for t in tensors:
        mine, flat = flat[: t.numel()], flat[t.numel() :]
        pieces.append(mine.view_as(t))
    return pieces


# assign_buckets


@right("assign_buckets")
def each_kind_alone(parameters, bucket_cap_mb, first_bucket_mb=None):
    """Walk over each kind; order the full buckets by the parameters that closed them.

    The remaining buckets are in the order of the parameters that opened them.
    """
    parameters = list(parameters)[::-1]
    kinds, closed = {}, []
    for at, p in enumerate(parameters):
        kinds.setdefault((p.dtype, p.device), []).append((at, p))
    for members in kinds.values():
        caps = itertools.chain(
            [bucket_cap_mb if first_bucket_mb is None else first_bucket_mb],
            itertools.repeat(bucket_cap_mb),
        )
        bucket, room, opened = [], next(caps) * 1024 * 1024, 0
        for at, p in members:
            opened = opened if bucket else at
            bucket.append(p)
            room -= p.nbytes
            if room <= 0:
                closed.append((at, bucket))
                bucket, room = [], next(caps) * 1024 * 1024
        if bucket:
            closed.append((len(parameters) + opened, bucket))
    return [bucket for _, bucket in sorted(closed, key=lambda pair: pair[0])]


@right("assign_buckets")
def counts_on_the_way(parameters, bucket_cap_mb, first_bucket_mb=None):
    """Count the bytes on the way; a kind loses its place in the dict when its bucket closes."""
    buckets, full, filled, limit = {}, [], {}, {}
    for p in [*parameters][::-1]:
        kind = f"{p.dtype}{p.device}"
        limit.setdefault(kind, bucket_cap_mb if first_bucket_mb is None else first_bucket_mb)
        buckets.setdefault(kind, []).append(p)
        filled[kind] = filled.get(kind, 0) + p.numel() * p.dtype.itemsize
        if filled[kind] / 2**20 >= limit[kind]:
            full.append(tuple(buckets.pop(kind)))
            filled[kind], limit[kind] = 0, bucket_cap_mb
    return full + [tuple(bucket) for bucket in buckets.values()]


# GradientBuckets


@right("GradientBuckets")
class Plain:
    """A class that always copies, and relies on copy_ of a tensor into itself."""

    def __init__(self, buckets):
        self.parameters, self.flat, self.views = list(buckets), [], []
        for number, bucket in enumerate(self.parameters):
            flat = torch.zeros(
                sum(p.numel() for p in bucket), dtype=bucket[0].dtype, device=bucket[0].device
            )
            views, at = [], 0
            for p in bucket:
                views.append(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
            self.flat.append(flat)
            self.views.append(views)
            self.collect(number)

    def collect(self, i):
        for at, p in enumerate(self.parameters[i]):
            if p.grad is None:
                self.views[i][at].fill_(0)
            else:
                self.views[i][at].copy_(p.grad)
                p.grad = self.views[i][at]


@right("GradientBuckets")
class NewFlatEachTime:
    """A class that collects into a new flat tensor, and makes the views again."""

    def __init__(self, buckets):
        self.parameters = [tuple(bucket) for bucket in buckets]
        self.flat, self.views = {}, {}
        self.flat = [None for _ in self.parameters]
        self.views = [None for _ in self.parameters]
        for i in range(len(self.parameters)):
            self.collect(i)

    def collect(self, i):
        values = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters[i]]
        self.flat[i] = torch.cat([value.detach().reshape(-1) for value in values])
        parts = self.flat[i].split([value.numel() for value in values])
        self.views[i] = [a.view(b.shape) for a, b in zip(parts, values, strict=True)]
        for p, view in zip(self.parameters[i], self.views[i], strict=True):
            if p.grad is not None:
                p.grad = view


# best_cap


@right("best_cap")
def in_two_steps(caps, ready, sizes, latency, bandwidth, world_size):
    """Make the buckets first, as (ready, bytes), and then simulate the link."""
    best, earliest = None, float("inf")
    for cap in caps:
        buckets, members = [], []
        for gradient in zip(ready, sizes, strict=True):
            members.append(gradient)
            if sum(size for _, size in members) / 1024**2 >= cap:
                buckets.append(members)
                members = []
        buckets += [members] if members else []
        clock = 0.0
        for bucket in buckets:
            start = max(clock, bucket[-1][0])
            nbytes = sum(size for _, size in bucket)
            clock = start + 2 * (world_size - 1) * (latency + nbytes / world_size / bandwidth)
        if clock < earliest:
            best, earliest = cap, clock
    return best


@right("best_cap")
def by_numpy(caps, ready, sizes, latency, bandwidth, world_size):
    def finish(cap):
        ends, held = [], 0
        for i, size in enumerate(sizes):
            held += size
            if held >= cap * 2**20:
                ends.append(i)
                held = 0
        if held:
            ends.append(len(sizes) - 1)
        total = np.diff(np.cumsum(sizes)[ends], prepend=0)
        takes = 2 * (world_size - 1) * latency
        takes = takes + 2 * (world_size - 1) / world_size * total / bandwidth
        after = np.cumsum(takes[::-1])[::-1]  # time of all remaining buckets, from this bucket on
        return float((np.array(ready)[ends] + after).max())

    return caps[int(np.argmin([finish(cap) for cap in caps]))]
