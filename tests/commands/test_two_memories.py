"""A script on an emulated device has two memories, exact to the byte, and copies, to the ns."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ddpkit import RankError
from ddpkit.rank.emulation.held import HOST, UNDECIDED
from ddpkit.rank.emulation.places import Places
from tests.commands.test_run import on

pytestmark = pytest.mark.processes

BUS = "device of 1 PFLOP/s, 10 us; bus 25 GB/s"
# The times in us at which the host goes on and the device ends. K1 takes 1 ms, K2 0.5 ms, a launch
# 10 us. From vector 22 of tests/simulate/test_device.py.
COPIES = {
    "up pinned non_blocking": (20, 5510),
    "up pinned": (5010, 5520),
    "up pageable non_blocking": (9020, 9530),  # the driver waits for K1 first
    "up pageable": (9020, 9530),
    "up copy_": (9020, 9530),
    "up copy_ pinned non_blocking": (20, 5510),
    "down non_blocking": (20, 5510),  # torch pins the result
    "down": (9010, 9520),
    "down copy_": (9010, 9520),
    "down copy_ pinned non_blocking": (20, 5510),
    "there": (10, 1510),
    "here": (10, 1510),
    "device to device": (20, 1510),
    "item": (1010, 1520),
    "item of the host": (10, 1510),
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDPKIT_DEVICE", "cpu")


def test_copies_take_the_time_of_the_bus() -> None:
    on(1, "copies.py", machine=BUS)
    found = json.loads(Path("found.json").read_text("utf-8"))
    assert {name: tuple(times) for name, times in found.items()} == COPIES


@pytest.mark.parametrize(
    "part",
    ["device_and_bytes", "made", "mixed", "pinned", "loaded", "communicated", "to_numpy"],
)
def test_each_tensor_has_a_place(part: str) -> None:
    on(1 if part != "communicated" else 2, "places.py", part, machine="A100", link="1 GB/s")


def test_each_memory_is_full_by_itself() -> None:
    machine = "device of 1 TFLOP/s, 20 MB; host 1 TFLOP/s, 50 MB"
    on(1, "places.py", "full", machine=machine)


def test_the_same_script_on_one_memory_has_no_places() -> None:
    with pytest.raises(RankError, match="AssertionError"):
        on(1, "places.py", "device_and_bytes", machine="1 TFLOP/s")


def test_offloaded_parameters_leave_the_device() -> None:
    """A rank holds half of four matrices of 1 MB, and two moments of each: 6 MB on the device."""
    found = {}
    for kind in "none", "pageable", "pinned":
        on(2, "offload.py", kind, machine="A100", link="100 Gbit/s, 5 us")
        ranks = [Path(f"bytes of rank {rank}").read_text("utf-8") for rank in range(2)]
        assert ranks[0] == ranks[1]
        found[kind] = tuple(map(int, ranks[0].split()))
    held, peak = found["none"]
    assert held == 6_000_000
    for kind in "pageable", "pinned":
        assert found[kind][0] == 0
        assert found[kind][1] <= peak - 6_000_000


def test_a_thread_has_blocks_of_its_own() -> None:
    """An async_save copies in a thread while the main thread computes."""
    memory: Any = SimpleNamespace(model=SimpleNamespace(host=None))
    places = Places(memory, cast(Any, SimpleNamespace()), cast(Any, None), 1.0)
    with places.making(HOST, named=True), ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: places.of_data).result() == UNDECIDED
        assert places.of_data == HOST
