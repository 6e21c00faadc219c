"""The caching allocator of CUDA memory, against its rules worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.rank.emulation.allocator import CachingAllocator, NoRoom

KIB, MIB = 1 << 10, 1 << 20


def test_small_requests_share_a_segment_of_2_mib() -> None:
    allocator = CachingAllocator()
    first, second = allocator.malloc(1), allocator.malloc(600)
    assert (first.size, second.size, allocator.active) == (512, 1024, 1536)
    assert second.address == first.address + 512
    assert allocator.reserved == 2 * MIB
    allocator.malloc(1 * MIB)
    assert allocator.reserved == 2 * MIB  # the rest of 2 MiB - 1.5 KiB is large enough
    allocator.malloc(1 * MIB)
    assert allocator.reserved == 4 * MIB


def test_larger_requests_take_20_mib_or_a_segment_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.malloc(1 * MIB + 1)
    assert allocator.reserved == 20 * MIB
    allocator.malloc(9 * MIB)
    assert allocator.reserved == 20 * MIB
    allocator.malloc(10 * MIB)  # 9 MiB - 512 bytes are left
    assert allocator.reserved == 30 * MIB
    allocator.malloc(11 * MIB + 1)
    assert allocator.reserved == 42 * MIB  # rounded up to 2 MiB


def test_a_large_block_is_split_only_if_more_than_1_mib_remains() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(100 * MIB))
    kept = allocator.malloc(99 * MIB)
    assert (kept.size, allocator.active, allocator.reserved) == (100 * MIB, 100 * MIB, 100 * MIB)
    allocator.free(kept)
    assert allocator.malloc(98 * MIB).size == 98 * MIB


def test_the_smallest_fitting_block_is_taken_and_neighbours_join() -> None:
    allocator = CachingAllocator()
    large = allocator.malloc(60 * MIB)
    middle = allocator.malloc(40 * MIB)
    allocator.free(large)
    allocator.free(middle)
    assert allocator.malloc(40 * MIB).address == middle.address
    parts = [allocator.malloc(20 * MIB) for _ in range(3)]  # three thirds of the first segment
    assert allocator.reserved == 100 * MIB
    for part in (parts[0], parts[2], parts[1]):
        allocator.free(part)
    assert allocator.malloc(60 * MIB).address == large.address


def test_each_stream_has_blocks_of_its_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(50 * MIB, stream=1))
    allocator.malloc(50 * MIB)
    assert allocator.reserved == 100 * MIB
    allocator.malloc(50 * MIB, stream=1)
    assert allocator.reserved == 100 * MIB


def test_cached_segments_are_released_before_a_request_fails() -> None:
    allocator = CachingAllocator(limit=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(70 * MIB)
    assert (allocator.reserved, allocator.most_reserved, allocator.retries) == (
        *(70 * MIB, 70 * MIB, 1),
    )


def test_fragments_can_fail_a_request_for_which_the_bytes_would_do() -> None:
    """Every second of ten blocks is free: 50 MiB in five pieces, and 20 MiB fit into none."""
    allocator = CachingAllocator(limit=100 * MIB)
    whole = allocator.malloc(100 * MIB)
    allocator.free(whole)
    blocks = [allocator.malloc(10 * MIB) for _ in range(10)]
    for block in blocks[::2]:
        allocator.free(block)
    with pytest.raises(NoRoom) as raised:
        allocator.malloc(20 * MIB)
    assert raised.value.needed == 20 * MIB
    assert (allocator.active, allocator.reserved) == (50 * MIB, 100 * MIB)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from([1, 700, 70 * KIB, MIB, 3 * MIB, 25 * MIB]),
            st.integers(0, 2),
        ),
        max_size=60,
    )
)
def test_blocks_fill_the_segments_without_overlap(requests: list[tuple[int, int, int]]) -> None:
    allocator, held = CachingAllocator(), {}
    for name, nbytes, stream in requests:
        if name in held:
            allocator.free(held.pop(name))
        else:
            held[name] = allocator.malloc(nbytes, stream)
    segments = allocator.snapshot()
    assert sum(each["total_size"] for each in segments) == allocator.reserved
    assert sum(each["active_size"] for each in segments) == allocator.active
    in_use = []
    for segment in segments:
        at, was_free = segment["address"], False
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
            free = block["state"] == "inactive"
            assert not (free and was_free), "free neighbours are joined"
            was_free = free
            in_use += [] if free else [(block["address"], block["requested_size"])]
        assert at == segment["address"] + segment["total_size"]
    assert sorted(in_use) == sorted((block.address, block.requested) for block in held.values())
    for block in held.values():
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.active, allocator.snapshot()) == (0, 0, [])
