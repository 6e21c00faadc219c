"""What is used, seen from outside: clocks on a busy machine, memory of many, disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ddpkit.grade.engine import PATIENCE, _served, _Watch
from ddpkit.grade.sandbox import Limits, Usage, tree, usage


def test_who_waits_for_a_core_is_served_less() -> None:
    begun = Usage()
    assert _served(begun, Usage(computed_s=5, waited_s=45)) == pytest.approx(0.11, abs=0.02)
    assert _served(begun, Usage(computed_s=50, waited_s=0)) == 1.0


def test_the_clock_of_a_sleeper_runs() -> None:
    assert _served(Usage(computed_s=3, waited_s=9), Usage(computed_s=3, waited_s=9)) == 1.0


def test_usage_of_this_process() -> None:
    now = usage(tree(os.getpid()))
    assert now.processes >= 1
    assert now.computed_s > 0
    assert 1 << 20 < now.memory < 1 << 36


def watching(now: Usage, seconds: float) -> str | None:
    """What the watch says to a cell that has run for so long, and used this."""
    watch = _Watch(lambda: now, -1, Limits(), cells=2)
    watch.usage = Usage
    watch._read_line(json.dumps({"begins": 0}).encode())
    watch.usage = lambda: now
    watch.begun -= seconds
    return watch._limit()


def test_a_machine_under_load_makes_no_timeout() -> None:
    allowed = Limits().start_s
    starved = Usage(computed_s=5, waited_s=allowed)
    assert watching(Usage(computed_s=5), allowed + 1) == "timeout"
    assert watching(starved, allowed + 1) is None
    assert watching(starved, PATIENCE * allowed + 1) == "infra_error"  # and a rerun: test_sandbox


@pytest.mark.parametrize(
    ("used", "why"),
    [
        (Usage(memory=(6 << 30) + 1), "memory"),
        (Usage(processes=151), "processes"),
        (Usage(disk=(256 << 20) + 1), "disk"),
        (Usage(150, 6 << 30, 0, 0, 256 << 20), None),
    ],
    ids=str,
)
def test_limits_hold_for_all_processes_together(used: Usage, why: str | None) -> None:
    assert watching(used, 0) == why


@pytest.mark.processes
def test_the_memory_of_many_processes_counts() -> None:
    """Each below its own limit."""
    hoard = "import sys; x = bytearray(60 << 20); print(1, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    hoarders = [subprocess.Popen([sys.executable, "-c", hoard], **pipes) for _ in range(3)]
    try:
        before = usage({os.getpid()}).memory
        assert all(each.stdout.readline() == b"1\n" for each in hoarders)
        assert 180 << 20 < usage(tree(os.getpid())).memory - before < 1 << 30
    finally:
        for each in hoarders:
            each.communicate(b"")
