"""`ddpkit run --no-values` counts a script's large operations without computing them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddpkit import Cluster, Run
from ddpkit.commands.main import main
from ddpkit.commands.run import launched
from ddpkit.protocol import not_computed
from ddpkit.rank.script.launched import LaunchedScript
from tests.project.source import ROOT

pytestmark = pytest.mark.processes

SCRIPTS = Path(__file__).parent / "scripts"
LARGE = """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
layers = [torch.nn.Linear(8192, 8192, bias=False) for _ in range(8)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.ones(4096, 8192, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {dist.get_rank()}: {loss.item()}")
"""


MANY = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import ddpkit

dist.init_process_group("nccl")
model = torch.nn.Linear(4096, 4096).cuda()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    with ddpkit.step(tokens=64):
        model(torch.ones(64, 4096, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
"""


class WithFew(LaunchedScript):
    """A script whose ranks compute small tensors only."""

    def __call__(self) -> None:
        not_computed.SMALL = 48
        super().__call__()


def both(name: str, *args: str, **how: Any) -> list[Run[None]]:
    """Run a script on 2 ranks, with values and without."""
    found = []
    for values in (True, False):
        cluster = Cluster(2, link="10 Gbit/s, 5 us", values=values, **how)
        script = launched(str(SCRIPTS / name), args, False, cluster)
        if not values:
            script = WithFew(**vars(script))
        found.append(cluster.run(script))
    return found


@pytest.mark.parametrize("machine", ["A100", "20 TFLOP/s, 2 TB/s, 80 GB, 5 us"])
@pytest.mark.parametrize(
    ("name", "argument"),
    # gpt.py and tensor_parallel.py assert that the loss falls.
    [("ddp.py", ""), ("pipeline.py", ""), ("gpu.py", "modelled")],
)
def test_scripts_take_the_same_time_and_memory(
    name: str, argument: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # one of the scripts saves a file in the current folder
    known, unknown = both(name, *[argument] * bool(argument), machine=machine)
    assert sorted(map(repr, known.trace.spans)) == sorted(map(repr, unknown.trace.spans))
    assert known.trace.memory == unknown.trace.memory
    assert unknown.trace.facts["values"] == "not computed"


def test_a_script_that_saves_and_resumes(tmp_path: Path) -> None:
    """Only the steps are equal: the files have other sizes, and the ranks exchange these sizes."""
    known, unknown = both("fsdp.py", str(tmp_path), machine="A100")
    for run in (known, unknown):
        assert run.trace.steps > 1
    durations = [
        [span.end_ns - span.start_ns for span in first_step(run)] for run in (known, unknown)
    ]
    assert durations[0] == durations[1]


def first_step(run: Run[None]) -> list[Any]:
    return [span for span in run.trace.step(0).spans if span.rank == 0]


def test_the_large_model_of_the_page_on_scripts(tmp_path: Path) -> None:
    """The command of docs/run.md runs a model of two gigabytes on eight ranks."""
    page = (ROOT / "docs" / "run.md").read_text("utf-8")
    (command,) = re.findall(r"^ddpkit (run .*--no-values.*\\\n.*)$", page, re.MULTILINE)
    (tmp_path / "train.py").write_text(LARGE)
    done = subprocess.run(
        [sys.executable, "-m", "ddpkit", *shlex.split(command.replace("\\\n", ""))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}: 0.0" for rank in range(8)]
    said = " ".join(done.stderr.split())
    assert "Values: not computed. Values read all the same, as zero: line 13 (8 reads)." in said
    assert "parameters 2.15 GB, gradients 2.15 GB" in said or "optimizer 4.29 GB" in said


def test_a_machine_is_needed() -> None:
    done = CliRunner().invoke(main, ["run", "-n", "2", "--no-values", str(SCRIPTS / "ddp.py")])
    assert done.exit_code != 0
    assert "only a modelled machine knows their cost: add one, as in --machine A100" in done.output


def test_few_ranks_stand_for_many(tmp_path: Path) -> None:
    """The script sees all ranks; the report's tokens and price are those of all ranks."""
    (tmp_path / "train.py").write_text(MANY)
    called = [sys.executable, "-m", "ddpkit", "run", "-n", "512", "--no-values", "--alike", "2"]
    how = ["--machine", "A100", "--price", "2", "--json", "numbers.json", "train.py"]
    done = subprocess.run(
        [*called, *how], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 512" for rank in range(2)]
    said = " ".join(done.stderr.split())
    assert "Alike: 2 of 512 ranks ran, and rank r is a copy of rank r mod 2." in said
    assert "steps of 512 machines at 2 an hour" in said
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["ranks"] == 512
    assert numbers["step"]["amounts"]["tokens"]["per_step"] == 512 * 64
    assert len(numbers["run"]["by_rank"]) == 2


def test_ranks_are_alike_without_values_only() -> None:
    script = str(SCRIPTS / "ddp.py")
    done = CliRunner().invoke(main, ["run", "-n", "4", "--alike", "2", "--machine", "A100", script])
    assert done.exit_code != 0
    assert "so the other ranks have no values: add --no-values and --machine" in done.output
