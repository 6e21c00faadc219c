# mypy: ignore-errors
"""Answers of lab 05 (bucketing).

Generated from solutions/05_bucketing.py by `make release`; do not edit.
"""

import torch


def flatten(tensors) -> torch.Tensor:
    """Return one new 1-D tensor with the elements of all `tensors`, in order and in their dtype.

    The tensors may have any shapes and strides, and have the same dtype.
    """
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(flat: torch.Tensor, tensors) -> list[torch.Tensor]:
    """Cut the 1-D tensor `flat` into views: one for each of `tensors`, with this tensor's shape.

    Returns a list or tuple, in order. `tensors` only give the shapes, and stay unchanged.
    """
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors)]


def assign_buckets(parameters, bucket_cap_mb: float, first_bucket_mb: float | None = None):
    """Return a list of buckets, in the order in which they close; a bucket is a list of parameters.

    Put the parameters in from the last to the first, each into the open bucket of its dtype and
    device. A bucket closes when its bytes reach `bucket_cap_mb` (1 MB is 2**20 bytes). If
    `first_bucket_mb` is given, it is the cap of the first bucket of each dtype and device. At the
    end, the open buckets close, in the order in which they were opened. `parameters` may be an
    iterator. Tuples are as good as lists.
    """
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


class GradientBuckets:
    """Flat tensors, one for each bucket, and the gradients as views of these tensors.

    `parameters[i]` the parameters of bucket i `flat[i]` the 1-D tensor with all elements of bucket
    i, of their dtype and device `views[i]` views of `flat[i]`, one for each parameter of bucket i

    The constructor collects the gradients that exist already.
    """

    def __init__(self, buckets):
        self.parameters = [list(bucket) for bucket in buckets]
        self.flat = [flatten([torch.zeros_like(p) for p in bucket]) for bucket in self.parameters]
        self.views = [unflatten(flat, b) for flat, b in zip(self.flat, self.parameters)]
        for i in range(len(self.flat)):
            self.collect(i)

    def collect(self, i: int) -> None:
        """Replace each gradient of bucket i by its view in the bucket, with the gradient's values.

        A gradient that is None stays None, and counts as zeros in `flat[i]`. Other buckets are
        left alone.
        """
        for p, view in zip(self.parameters[i], self.views[i]):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():
                view.copy_(p.grad)
                p.grad = view


def best_cap(caps, ready, sizes, latency, bandwidth, world_size: int) -> float:
    """Return the cap, one of `caps` in MB, with which the last all-reduce is done earliest.

    A bucket closes when its bytes reach the cap (1 MB is 2**20 bytes), and at the end. Gradient i
    is ready after `ready[i]` seconds, and has `sizes[i]` bytes; both lists are in the order of
    readiness. `latency` is in seconds, `bandwidth` in bytes per second. If several caps are equally
    good, return the first of these caps.
    """

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
