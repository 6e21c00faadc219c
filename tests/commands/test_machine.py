"""`ddpkit machine`: named machines are listed with sources, and this computer is measured."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from ddpkit import Cluster, measure
from ddpkit.commands.main import main
from ddpkit.machine import KINDS, MachineModel, named

GRIDS = {
    "PRODUCTS": [(8, 8, 8), (32, 32, 32)],
    "CONVOLUTIONS": [(1, 4, 8, 3)],
    "ATTENTIONS": [(1, 2, 8, 8)],
    "ELEMENTS": [64, 4096],
    "REDUCTIONS": [(16, 32)],
    "TRANSPOSES": [(8, 4)],
    "WORKING_SET": 1 << 16,
    "ROUNDS": 1,
    "AT_LEAST": 1e-4,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, grid in GRIDS.items():
        monkeypatch.setattr(measure, name, grid)


def test_named_machines_are_listed_with_their_sources():
    said = CliRunner().invoke(main, ["machine"]).output
    for name, machine in named().items():
        assert f"{name}: {machine.title}" in said
    assert "data sheet" in said
    assert "stated by ddpkit" in said
    device = said.splitlines()[-1].split('"')[1]
    assert MachineModel.parse(device).has_device
    assert "5 us of the host (stated by ddpkit)" in said


@pytest.mark.processes
def test_what_was_measured_is_a_machine(small: None, tmp_path: Path):
    path = tmp_path / "mine.json"
    threads = torch.get_num_threads()
    ran = CliRunner().invoke(main, ["machine", "--measure", "-o", str(path)])
    assert ran.exit_code == 0, ran.output
    assert f'Use it: Cluster(8, machine="{path}")' in ran.output
    assert torch.get_num_threads() == threads
    machine = MachineModel.parse(path)
    assert set(machine.kinds) == set(KINDS)
    assert machine.launch_ns > 0
    assert all("measured by ddpkit on" in said for said in machine.source.values())
    assert set(machine.source) == set(json.loads(path.read_text())) - {"title", "source"}
    small_product, large = (machine.cost_ns("matmul", 2.0 * n**3, 0) for n in (8, 512))
    assert 0 < small_product < large
    cluster = Cluster(1, machine=str(path))
    assert "machine mine" in repr(cluster)


@pytest.mark.processes("some")  # the name of the processor may be asked of `uname`
@pytest.mark.parametrize("words", [["--device", "nothing"], ["-o", "/nowhere/mine.json"]])
def test_what_cannot_be_measured_is_said(small: None, words: list[str]):
    ran = CliRunner().invoke(main, ["machine", "--measure", *words])
    assert ran.exit_code == 1
    assert "Error: cannot" in ran.output
