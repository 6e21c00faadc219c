"""The number of cores that a process may use: its CPU affinity, and the limit of its container."""

import os

import pytest

from ddpkit.cluster import cores as module
from ddpkit.cluster.cores import cores


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Return the control groups of a machine with 8 cores; no file limits the cores yet."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(module, "CGROUPS", tmp_path)
    return tmp_path


def test_without_a_limit_all_cores_of_the_process(cgroups):
    assert cores() == 8
    (cgroups / "cpu.max").write_text("max 100000\n")
    assert cores() == 8


def test_where_a_process_is_bound_to_no_cores_those_of_the_machine(cgroups, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS and Windows
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


@pytest.mark.parametrize(
    ("quota", "expected"), [("200000", 2), ("150000", 2), ("10000", 1), ("9900000", 8)]
)
def test_a_containers_share_in_both_versions_of_control_groups(cgroups, quota, expected):
    (cgroups / "cpu.max").write_text(f"{quota} 100000\n")
    assert cores() == expected
    (cgroups / "cpu.max").unlink()
    (cgroups / "cpu").mkdir()
    (cgroups / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (cgroups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores() == expected
    (cgroups / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert cores() == 8, "no limit"
