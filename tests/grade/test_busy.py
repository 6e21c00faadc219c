"""Clocks on a busy machine: who could not compute has not taken long."""

from __future__ import annotations

import os

import pytest

from ddpkit.grade.engine import _served
from ddpkit.grade.sandbox import Usage, usage


def test_who_waits_for_a_core_is_served_less() -> None:
    begun = Usage()
    assert _served(begun, Usage(computed_s=5, waited_s=45)) == pytest.approx(0.11, abs=0.02)
    assert _served(begun, Usage(computed_s=50, waited_s=0)) == 1.0


def test_the_clock_of_a_sleeper_runs() -> None:
    assert _served(Usage(computed_s=3, waited_s=9), Usage(computed_s=3, waited_s=9)) == 1.0


def test_usage_of_this_process() -> None:
    now = usage(os.getpid())
    assert now.processes >= 1
    assert now.computed_s > 0
    assert 1 << 20 < now.memory < 1 << 36
