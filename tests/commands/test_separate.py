"""The report on a script that joins no process group says: these are separate trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddpkit import Cluster
from ddpkit.commands.run import launched
from ddpkit.commands.summary import summary

pytestmark = pytest.mark.processes

TRAINS = """
import torch
model = torch.nn.Linear(64, 64)
for step in range(2):
    model(torch.ones(32, 64)).sum().backward()
"""
JOINS = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
NETWORKS: dict[str, dict[str, Any]] = {
    "real": {},
    "link": {"link": "1 Gbit/s, 20 us"},
    "machine": {"machine": "1 TFLOP/s", "link": "1 Gbit/s, 20 us"},
}


def report(folder: Path, code: str, ranks: int, network: dict[str, Any]) -> str:
    """Return the report on the run of a script with this code."""
    script = folder / "train.py"
    script.write_text(code)
    cluster = Cluster(ranks, device="cpu", **network)
    return summary(cluster.run(launched(str(script), (), False, cluster)))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_nobody_joined(tmp_path: Path, network: dict[str, Any]) -> None:
    said = report(tmp_path, TRAINS, 2, network)
    assert "No rank called init_process_group: these were 2 separate trainings." in said
    assert "No communication" not in said


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_all_joined_and_none_communicated(tmp_path: Path, network: dict[str, Any]) -> None:
    said = report(tmp_path, JOINS + TRAINS, 2, network)
    assert "No communication." in said
    assert "separate" not in said


def test_one_rank_alone_is_no_separate_training(tmp_path: Path) -> None:
    assert "separate" not in report(tmp_path, TRAINS, 1, {})


def test_ranks_that_compute_nothing_are_separate_programs(tmp_path: Path) -> None:
    said = report(tmp_path, "print(1)", 3, {})
    assert "No rank called init_process_group: these were 3 separate programs." in said
