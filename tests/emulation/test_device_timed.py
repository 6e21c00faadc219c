"""Times that a program takes without `synchronize()`, on ranks with a device."""

import time

import pytest
import torch

from ddpkit import Cluster
from ddpkit.rank.emulation.busy import busy
from ddpkit.rank.emulation.timed import measures

pytestmark = pytest.mark.processes


def device() -> Cluster:
    return Cluster(1, link="1 GB/s", machine="device of 1 PFLOP/s, 10 us")


def test_a_time_of_launches_is_said_with_its_lines() -> None:
    """20 launches take 10 us each; the kernels of 100 us work from 10 to 2,010 us."""

    def program() -> float:
        start = time.perf_counter()
        for _ in range(20):
            busy("100 us")
        return time.perf_counter() - start

    run = device().run(program)
    first = program.__code__.co_firstlineno
    assert run.results == [pytest.approx(200e-6)]
    assert run.trace.facts["timed"] == (
        f"test_device_timed.py line {first + 4} (0.2 ms since line {first + 1}, "
        "the device works until 2.01 ms)"
    )


def test_a_name_that_is_subtracted_later_is_a_measurement() -> None:
    def program() -> float:
        start = time.time()
        busy("100 us")
        end = time.time()
        return end - start

    assert "line" in str(device().run(program).trace.facts["timed"])


@pytest.mark.parametrize("how", ["synchronize", "item", "event"])
def test_a_program_that_waits_for_its_device_is_not_accused(how: str) -> None:
    def program(how: str) -> None:
        x, event = torch.ones(1), torch.cpu.Event()
        for _ in range(3):
            start = time.perf_counter()
            busy("100 us")
            event.record()
            if how == "item":
                x.item()
            elif how == "event":
                event.synchronize()
            else:
                torch.cpu.synchronize()
            assert time.perf_counter() - start > 0

    assert "timed" not in device().run(program, how).trace.facts


def test_limits_seeds_and_short_times_are_no_measurements() -> None:
    def program() -> None:
        start, seed = time.time(), time.time_ns()
        while True:
            busy("100 us")
            if time.time() - start > 1e-3:
                break
        torch.manual_seed(seed % 100)
        torch.cpu.synchronize()
        begun = time.time()
        busy("1 us")
        took = time.time() - begun
        assert took > 0

    assert "timed" not in device().run(program).trace.facts


def test_measures_reads_the_line_and_the_names(tmp_path) -> None:
    file = tmp_path / "f.py"
    file.write_text(
        "a = time()\nb = time()\nself.c = time()\nprint(time() - a, b - a, self.c - a)\n"
        "if time() - a > 3: pass\nd = time() + 60\nx = d - a\n"
    )
    assert [measures(str(file), line) for line in range(1, 7)] == [
        *(False, True, True, True, False, False),
    ]
