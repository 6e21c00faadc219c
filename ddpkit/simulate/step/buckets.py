"""Gradients, and the buckets into which DistributedDataParallel puts them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.asked import not_for

MB = 2**20  # the unit of torch's bucket_cap_mb
DEFAULT_CAP_MB = 25.0
DEFAULT_FIRST_MB = 1.0


@dataclass(frozen=True, slots=True)
class Gradient:
    """One parameter's gradient.

    `ready_ns` is the compute time of the backward until this gradient is ready, in ns.
    """

    name: str
    bytes: int
    ready_ns: int
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together: their names, and the sum of their bytes."""

    gradients: tuple[str, ...]
    bytes: int


def assign_buckets(
    gradients: Sequence[Gradient],
    bucket_cap_mb: float | None = None,
    first_bucket_mb: float | None = None,
) -> tuple[Bucket, ...]:
    """Return the buckets that torch's DDP makes, in the order in which they are reduced.

    ``gradients`` are in the order in which they become ready. A bucket holds one dtype. A bucket
    closes when it reaches its cap, and may exceed the cap. Caps are in MB of 2**20 bytes. The first
    bucket of a dtype has its own cap, so that communication starts early: 1 MB if the cap is left
    at its default of 25 MB, otherwise the cap itself (torch/nn/parallel/distributed.py,
    `_BucketCapacityConfig`; reducer.cpp, `compute_bucket_assignment_by_size`).
    """
    not_for("assign_buckets", "rebuilt_buckets", "best_cap", "step_time")
    if first_bucket_mb is None:
        first_bucket_mb = DEFAULT_FIRST_MB if bucket_cap_mb is None else bucket_cap_mb
    if bucket_cap_mb is None:
        bucket_cap_mb = DEFAULT_CAP_MB
    first, cap = int(first_bucket_mb * MB), int(bucket_cap_mb * MB)
    caps: dict[str, int] = {}  # the cap of the bucket that is being filled, by dtype
    filling: dict[str, list[Gradient]] = {}
    filled: dict[str, int] = {}  # the bytes in the open bucket, by dtype
    closed: list[list[Gradient]] = []
    for gradient in gradients:
        dtype = gradient.dtype
        filling.setdefault(dtype, []).append(gradient)
        filled[dtype] = filled.get(dtype, 0) + gradient.bytes
        if filled[dtype] >= caps.get(dtype, first):
            closed.append(filling.pop(dtype))
            caps[dtype], filled[dtype] = cap, 0
    closed += filling.values()
    return tuple(bucket_of(each) for each in closed)


def bucket_of(gradients: Sequence[Gradient]) -> Bucket:
    return Bucket(tuple(g.name for g in gradients), sum(g.bytes for g in gradients))
