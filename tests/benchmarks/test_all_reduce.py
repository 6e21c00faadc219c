"""The benchmark of all-reduces: its own ring sums correctly, and its table has the right
numbers."""

import pytest
import torch
import torch.distributed as dist

from benchmarks import _segments
from benchmarks.all_reduce import GLOO, LINK, RAW, SEGMENTS, VARIANTS, Row, draw, goals, run
from ddpkit import Cluster

MS = 1_000_000


def sums(lengths, parts):
    """Run on a rank; return the lengths and dtypes with a wrong sum of the ring in segments."""
    _segments.PARTS = parts
    rank, n = dist.get_rank(), dist.get_world_size()
    wrong = []
    for length in lengths:
        for dtype in (torch.float32, torch.int64):
            x = torch.arange(length).add(rank).to(dtype)
            _segments.ring_in_segments(x)
            if not torch.equal(x, torch.arange(length).mul(n).add(n * (n - 1) // 2).to(dtype)):
                wrong.append((length, dtype))
    return wrong


@pytest.mark.processes
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("parts", [2, 7])
def test_a_ring_in_segments_sums_every_length(n, parts):
    lengths = [0, 1, 2, 3, 8, 50, 101]  # few elements, and uneven ones
    assert Cluster(n).run(sums, lengths, parts).results == [[]] * n


@pytest.mark.processes
def test_every_variant_is_measured_past_the_recorder():
    row = run(RAW, 2, 4096, 1)
    assert list(row.ns) == list(VARIANTS)
    assert all(len(each) == 1 and each[0] > 0 for each in row.ns.values())


def test_bus_bandwidth_and_ratio_stand_in_a_cell():
    # 4 ranks, 1.25 MB, 1 Gbit/s, 200 us: t = 10 ms, ring 6 * 0.2 + 1.5 * 10 = 16.2 ms
    row = Row(LINK, 4, 1_250_000, {"ring": [18 * MS], "master_worker": [121 * MS, 121 * MS]})
    assert row.cell("ring") == "104 (1.11)"  # 1.25 MB * 1.5 / 18 ms; below 20 ms, so not judged
    assert row.cell("master_worker") == "15.5 ×2.00"  # 2 * 0.2 + 6 * 10 = 60.4 ms
    assert row.cell(GLOO) == "left out"
    assert Row(RAW, 2, 1000, {"ring": [MS]}).cell("ring") == "1"


def test_goals_are_judged_by_what_was_measured(tmp_path):
    link = Row(LINK, 4, 12_500_000, {"ring": [160 * MS]})  # the formula gives 151.2 ms
    raw = Row(RAW, 4, 16 * 1024**2, {SEGMENTS: [30 * MS, 20 * MS, 50 * MS], GLOO: [40 * MS] * 3})
    said = list(goals([link, raw], [raw]))
    assert len(said) == 2
    assert "to 1.058" in said[0]
    assert "MISSED" in said[0]
    assert "median 0.75, middle half 0.50 to 1.25" in said[1]
    assert "ok" in said[1]
    draw([link, raw], str(tmp_path / "figure.png"))
    assert (tmp_path / "figure.png").stat().st_size > 10_000
