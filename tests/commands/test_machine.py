"""`ddpkit machine` lists named machines with their sources, and measures this computer."""

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


def test_named_machines_are_listed_in_short():
    lines = CliRunner().invoke(main, ["machine"]).output.splitlines()
    head, *rows = lines[: len(named()) + 1]
    assert head.split("  ")[0] == ""
    for (name, machine), row in zip(named().items(), rows, strict=True):
        assert row.startswith(name)
        assert f"{machine.bandwidth / 1e9:,.4g} GB/s" in row
    device = lines[-1].split('"')[1]
    assert MachineModel.parse(device).has_device


def test_one_machine_is_printed_with_its_sources():
    said = " ".join(CliRunner().invoke(main, ["machine", "h100", "sxm"]).output.split())
    assert said.startswith(f"H100 SXM: {named()['H100 SXM'].title}")
    for words in (
        "float8_e4m3fn 1979",
        "data sheet",
        "4 us of the host (stated by ddpkit: as H100)",
        "0.64 of the peak, 0.4 of the bandwidth (fitted by ddpkit on 39 published training steps",
        "attention 0.35 of the peak",
        "NVLink 4 through NVSwitch: 370 GB/s reached by each, 8 in a host, 3.4 us (NVIDIA/nccl",
    ):
        assert words in said, words
    said = CliRunner().invoke(main, ["machine", "laptop core"]).output
    assert "network" not in said
    assert "0.7 of the peak" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [(["H10"], 'Did you mean "H100"?'), (["H100", "--measure"], "leave the name out")],
)
def test_a_name_that_cannot_be_read_is_one_sentence(words: list[str], said: str):
    ran = CliRunner().invoke(main, ["machine", *words])
    assert ran.exit_code
    assert said in ran.output


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


@pytest.mark.processes("some")  # Python may run `uname` for the name of the processor
@pytest.mark.parametrize("words", [["--device", "nothing"], ["-o", "/nowhere/mine.json"]])
def test_what_cannot_be_measured_is_said(small: None, words: list[str]):
    ran = CliRunner().invoke(main, ["machine", "--measure", *words])
    assert ran.exit_code == 1
    assert "Error: cannot" in ran.output
