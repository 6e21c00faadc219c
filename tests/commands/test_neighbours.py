"""torch's own code beside a device's queues, worked out by hand, to the nanosecond.

The programs of scripts/neighbours.py run under `ddpkit run`, and in a Cluster if they copy nothing.
A product of 100 × 100 matrices takes 1 ms, and a launch costs the host 10 us unless the test says
otherwise. Other kernels take no time on the device, because its memory has no limit of bandwidth.
Times are in us, first the host's, then the device's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddpkit import Cluster
from tests.commands.scripts import neighbours
from tests.commands.test_run import on

pytestmark = pytest.mark.processes
MS = "device of 2 GFLOP/s, 10 us"
WAYS = pytest.mark.parametrize("way", ["run", "cluster"])


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDPKIT_DEVICE", "cpu")


def found(program: str, way: str = "run", ranks: int = 1, machine: str = MS, **how: str) -> Any:
    """Return the results of a program on all ranks; one result if all ranks have the same."""
    if way == "cluster":
        results = Cluster(ranks, machine=machine, **how).run(getattr(neighbours, program)).results
    else:
        on(ranks, "neighbours.py", program, machine=machine, **how)
        files = [Path(f"found by {rank}.json") for rank in range(ranks)]
        results = [json.loads(file.read_text("utf-8")) for file in files]
    return results[0] if all(each == results[0] for each in results) else results


@WAYS
def test_accumulated_gradients_are_reduced_once(way: str) -> None:
    """Two layers, each a bucket of 40 kB, of which an all_reduce at 20 MB/s takes 2 ms.

    Vector 21: a micro-batch takes 8 ms, and 5 ms in `no_sync`. The device begins after one launch
    and is never idle: 10 + 5,000 + 5,000 + 8,000, or 10 + 3 × 8,000.

    A micro-batch has 2 products, a sum, the sum's gradient, 3 products and 2 sums with the
    gradients so far: 9 launches. A micro-batch that is reduced has 4 more: 2 divisions and 2
    calls. 3 × 9 + 4 = 31 launches, or 3 × 13 = 39.
    """
    assert found("accumulates", way, 2, link="20 MB/s") == {
        "True": [310, 18_010],
        "False": [390, 24_010],
    }


@WAYS
def test_zero_broadcasts_what_each_rank_has_stepped(way: str) -> None:
    """A rank owns one of two layers of 40 kB, which SGD reads twice and writes: 120 kB.

    At 800 MB/s the kernel takes 150, from 10 to 160. Each layer's broadcast at 20 MB/s takes
    2,000. The communicator is one queue: 160 ... 2,160 ... 4,160. The host launches one kernel and
    two calls.
    """
    machine = "device of 2 GFLOP/s, 800 MB/s, 10 us"
    assert found("zero", way, 2, machine, link="20 MB/s") == [30, 4_160]


@WAYS
def test_tensor_parallel_reduces_its_output_and_its_inputs_gradient(way: str) -> None:
    """Each rank has half of 200 columns, then half of 200 rows: products of 1 ms.

    Forward: 2 products, then the output's all_reduce of 40 kB, 2 ms. Backward: 2 products of the
    second layer and the first weight's. 10 + 2,000 + 2,000 + 3,000. An input that wants a gradient
    adds a product and an all_reduce, for which nothing is left to hide behind: 3,000 more.

    Launches: 2 products, call, sum, the sum's gradient, 3 products: 8. The input's gradient has a
    product, a call and a sum with the gradient so far: 11.
    """
    assert found("tensor_parallel", way, 2, link="20 MB/s") == {
        "False": [80, 7_010],
        "True": [110, 10_010],
    }


@WAYS
def test_a_scaler_lets_the_host_wait_in_each_step(way: str) -> None:
    """A step has 2 + 3 products. Without a scaler the host is ahead: 10 + 3 × 5,000.

    With one, the first backward ends at 5,010, and `found_inf.item()` holds the host until then.
    SGD's list is launched at 5,020, the scale's update at 5,030, and the next product at 5,040:
    30 later than on a device that is never idle. Two such gaps, and after the last step the list
    and the update: 15,010 + 2 × 30 + 20, for the host as well.

    A fused optimizer reads `found_inf` on the device, so the host never waits.

    Launches without a scaler: 2 products, a sum, the sum's gradient, 3 products and a list: 8 a
    step. Fused: the loss is scaled, and so is the gradient; `unscale` makes two numbers, copies
    both for the device and checks all gradients; `found_inf` is summed, with a product by its
    sign; then the update: 2 + 5 + 2 + 1 more, 18 a step.
    """
    assert found("scales", way) == {
        "none": [240, 15_010],
        "scaler": [15_090, 15_090],
        "fused": [540, 15_010],
    }


@WAYS
def test_a_pipeline_of_torchs_stages(way: str) -> None:
    """L = 0; a message of 40 kB at 80 MB/s takes 500. F 1,000; B 2,000, on rank 0 only 1,000.

    Rank 0: F0 ... 1,000, F1 ... 2,000. Activation 0: 1,000 ... 1,500. Rank 1: F0 ... 2,500; the
    second receive is behind F0, ... 3,000; F1 ... 4,000; B0 ... 6,000; B1 ... 8,000. Gradient 0:
    6,000 ... 6,500; rank 0: B0 ... 7,500. Gradient 1: 8,000 ... 8,500, when rank 1 is done; B1
    ... 9,500.
    """
    times = found("pipeline", way, 2, "device of 2 GFLOP/s", link="80 MB/s")
    assert times == [[0, 9_500], [0, 8_500]]


@WAYS
def test_events_on_two_streams(way: str) -> None:
    """K1 10 ... 110, K2 110 ... 160. S on the side stream follows K1's event, and is ready at 110.

    K2 is ready at 110 too and was launched first, so S runs from 160 to 460. The host waits for
    K2's event alone: 160. By then S is not done, and an event without a record is over. The first
    event is recorded at 0, on an idle stream.
    """
    assert found("events", way) == {
        "host": [160],
        "done": [True, True, False],
        "device": [460],
        "elapsed": [110, 160, 460],
    }


def test_batches_are_copied_in_line_or_beside_their_kernels() -> None:
    """Four batches of 100 MB: C takes 4 ms pinned, 8 ms pageable; K takes 5 ms.

    Pinned, one stream, `non_blocking`: nothing overlaps, 10 + 4 (4,000 + 5,000); 8 launches.
    Blocking: C1 10 ... 4,010, then K1's launch, 4,020 ... 9,020. C2 is launched at 4,030 and runs
    when K1 is done: 9,010 a turn. The last launch, K4's: 3 × 9,010 + 4,020.

    Beside, `non_blocking`: C1 10 ... 4,010, K1 ... 9,010, and each later copy is done before its
    turn: 4,010 + 4 × 5,000. Blocking: K1 4,020 ... 9,020 and no gaps, ... 24,020. The host waits
    for C2 4,030 ... 8,030, launches K2, waits for C3 8,050 ... 12,050 and for C4 12,070 ... 16,070,
    launches K4.

    Pageable, with the flag or without: the host waits for the copy's stream and for the copy. In
    line: C1 10 ... 8,010, K1 8,020 ... 13,020, C2 13,030: 13,020 a turn. Beside: the side stream is
    idle, so C2 runs from 8,030 to 16,030, behind which K2 is launched: 8,020 a turn. K4 ends at
    4 × 8,020 + 5,000.
    """
    machine = "device of 1 PFLOP/s, 10 us; bus 25 GB/s"
    pageable = {"inline": [47_080, 52_080], "beside": [32_080, 37_080]}
    assert found("prefetches", machine=machine) == {
        "pinned inline non_blocking": [80, 36_010],
        "pinned inline": [31_050, 36_050],
        "pinned beside non_blocking": [80, 24_010],
        "pinned beside": [16_080, 24_020],
        **{f"pageable {way}": times for way, times in pageable.items()},
        **{f"pageable {way} non_blocking": times for way, times in pageable.items()},
    }


def test_a_data_loader_pins_and_its_batches_are_copied() -> None:
    """Batches of 40 kB: 1 ms over the bus from pinned memory, 2 ms from pageable memory.

    The host's 80 MB/s take 1,000 to stack a batch (40 kB read, 40 kB written), and 1,000 to copy
    it to pinned memory, after a launch of 10 each. The loader draws a seed of 8 bytes: 10.1.

    Pinned: 10.1, stacked at 1,020.1, pinned at 2,030.1, the copy 2,040.1 ... 3,040.1, launched
    beside the product ... 4,040.1; the host is at 2,050.1: 2,040 a turn, and a batch later than
    the device. Host: 3 × 2,040 + 10.1. The last copy: 6,120.1 ... 7,120.1; the product ... 8,120.1.

    Pageable: stacked at 1,020.1, the copy 1,030.1 ... 3,030.1, which holds the host; the product
    3,040.1 ... 4,040.1: 3,030 a turn. Host: 3 × 3,030 + 10.1; the last product 1,000 later.

    A worker stacks and a thread pins: both cost the host nothing. Copies and products follow each
    other from 20.1 on: 6 × 1,000; 6 launches.
    """
    machine = f"{MS}; bus 40 MB/s; host 1 TFLOP/s, 80 MB/s"
    assert found("loads", machine=machine) == {
        "pinned": [6_130.1, 8_120.1],
        "pageable": [9_100.1, 10_100.1],
        "pinned, of a worker": [70.1, 6_020.1],
    }
