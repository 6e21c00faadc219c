"""The benchmark of turns prints its rows, on ranks of each stated kind."""

import os
import sys

import pytest

from benchmarks import turns
from ddpkit import Cluster

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="no batch jobs but on Linux"),
]


def test_it_prints_time_and_processor_time_of_each_job(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.turns", "--quick"])
    turns.main()
    printed = capsys.readouterr().out
    for job in turns.JOBS:
        assert f"2 ranks, {job}: time" in printed
        assert f"2 ranks, {job}: processor time of a rank" in printed
    assert "nan" not in printed


def policies(batch: bool) -> set[int]:
    turns.work("20 all-reduces, 4 kB", batch)
    return {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}


@pytest.mark.parametrize("batch", [True, False])
def test_all_threads_of_a_rank_are_of_that_kind(batch: bool) -> None:
    wanted = os.SCHED_BATCH if batch else os.SCHED_OTHER
    assert Cluster(2).run(policies, batch).results == [{wanted}] * 2
