"""Buckets, compared with torch's own assignment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.simulate import Bucket, Gradient, assign_buckets
from tests.properties import examples

MB = 2**20


def gradients(sizes: list[int], dtypes: list[str] | None = None) -> list[Gradient]:
    names = dtypes or ["float32"] * len(sizes)
    return [Gradient(f"p{i}", n, i, d) for i, (n, d) in enumerate(zip(sizes, names, strict=True))]


def indices(buckets: tuple[Bucket, ...]) -> list[list[int]]:
    return [[int(name[1:]) for name in bucket.gradients] for bucket in buckets]


def test_a_bucket_closes_when_it_reaches_its_cap() -> None:
    sizes = [MB // 2, MB // 2, MB // 2, MB // 2 - 4, MB, 4]
    buckets = assign_buckets(gradients(sizes), 1)
    assert indices(buckets) == [[0, 1], [2, 3, 4], [5]]
    assert [bucket.bytes for bucket in buckets] == [MB, 2 * MB - 4, 4]


def test_the_default_begins_with_a_small_bucket() -> None:
    """The default is torch's: 1 MB, then 25 MB; an explicit cap applies to the first bucket too."""
    many = gradients([MB] * 60)
    assert [len(b) for b in indices(assign_buckets(many))] == [1, 25, 25, 9]
    assert [len(b) for b in indices(assign_buckets(many, 25))] == [25, 25, 10]
    assert [len(b) for b in indices(assign_buckets(many, 25, first_bucket_mb=2))] == [2, 25, 25, 8]


def test_a_tiny_cap_gives_each_gradient_its_own_and_a_huge_one_all_the_same() -> None:
    some = gradients([4, 8, 400])
    assert indices(assign_buckets(some, 0)) == [[0], [1], [2]]
    assert indices(assign_buckets(some, 1000)) == [[0, 1, 2]]
    assert assign_buckets([], 1) == ()


KINDS = st.sampled_from((("float32",), ("float32", "float16")))
PARAMETERS = KINDS.flatmap(
    lambda kinds: st.lists(
        st.tuples(st.integers(1, 60_000), st.sampled_from(kinds)), min_size=1, max_size=30
    )
)


@examples(20)
@given(
    parameters=PARAMETERS,
    first=st.sampled_from((0.01, 0.05, 0.2)),
    cap=st.sampled_from((0.05, 0.1, 0.5)),
)
def test_the_rule_is_torchs(parameters: list[tuple[int, str]], first: float, cap: float) -> None:
    """`compute_bucket_assignment_by_size` fixes no order among buckets of different dtypes."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    dtypes = [dtype for _, dtype in parameters]
    tensors = [torch.empty(length, dtype=getattr(torch, dtype)) for length, dtype in parameters]
    limits = [int(first * MB), int(cap * MB)]
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    ours = indices(assign_buckets(gradients(sizes, dtypes), cap, first))
    assert sorted(ours) == sorted(theirs)
    if len(set(dtypes)) == 1:
        assert ours == theirs


@examples(50)
@given(sizes=st.lists(st.integers(0, 3 * MB), max_size=40), cap=st.floats(0, 5))
def test_every_gradient_is_in_one_bucket_in_order(sizes: list[int], cap: float) -> None:
    some = gradients(sizes)
    buckets = assign_buckets(some, cap)
    assert [i for bucket in indices(buckets) for i in bucket] == list(range(len(some)))
    assert sum(bucket.bytes for bucket in buckets) == sum(g.bytes for g in some)
    assert all(bucket.bytes >= int(cap * MB) for bucket in buckets[:-1])
