"""Groups of a user answer as torch's own groups do, and belong to the kit, in a cell and a script.

`ANSWERS` has the answers of torch's own groups: torchrun's rank 0 prints them for the same script.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from tests.commands.scripts import asks_its_groups

SCRIPT = Path(asks_its_groups.__file__)
NAMES = ("world", "named", "pairs", "enumerated", "tp", "a")
ANSWERS = {
    "backends": dict.fromkeys(NAMES, "gloo"),
    "names": dict.fromkeys(NAMES, "gloo"),
    "options": dict.fromkeys(NAMES, "_Options"),
    "sums": {
        "world": [10.0, 10.0, 10.0],
        "named": [10.0, 10.0, 10.0],
        "pairs": [3.0, 3.0, 3.0],
        "enumerated": [5.0, 5.0, 5.0],
        "tp": [3.0, 3.0, 3.0],
        "a": [4.0, 4.0, 4.0],
    },
    "ddp": "gloo",
    "barrier": "None",
    "barrier of a group": "None",
    "came": [3.0, 3.0],
}
NEWER = torch.__version__ >= "2.15"  # gloo groups can be split
SPLITS = {
    "torch": "torch.distributed.distributed_c10d" if NEWER else "No device associated with the",
    "kit": "ddpkit's process groups do not" if NEWER else "No device associated with the",
}
NETWORKS = {
    "real": {},
    "link": {"link": "1 Gbit/s, 20 us"},
    "machine": {"machine": "1 TFLOP/s", "link": "1 Gbit/s, 20 us"},
}


def assert_answers(given, by):
    split = given.pop("split")
    assert SPLITS[by] in split
    assert given == ANSWERS


@pytest.mark.processes("some")
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_cell_is_answered_as_by_torch(network):
    run = Cluster(4, **network).run(asks_its_groups.answers)
    assert_answers(run.results[0], "kit")
    sums = [span for span in run.trace.of(0) if span.name == "all_reduce"]
    assert len(sums) == len(NAMES)  # each all_reduce of a recorded group


@pytest.mark.processes("some")
@pytest.mark.parametrize("launcher", ["ddpkit.commands.main", "torch.distributed.run"])
def test_a_script_is_answered_alike_by_torchrun(launcher):
    kit = launcher.startswith("ddpkit")
    command = ["-m", "ddpkit", "run", "-n", "4"] if kit else ["-m", launcher, "--nproc-per-node=4"]
    told = subprocess.run(
        [sys.executable, *command, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    ).stdout
    answers = [line.partition("ANSWERS ")[2] for line in told.splitlines() if "ANSWERS " in line]
    (rank_0,) = (each for each in map(json.loads, answers) if each["came"] == ANSWERS["came"])
    assert_answers(rank_0, "kit" if kit else "torch")


def sums_a_megabyte(backend):
    group = dist.new_group(backend=backend)
    dist.all_reduce(torch.ones(250_000), group=group)


@pytest.mark.processes("some")
def test_a_group_with_a_backend_is_emulated():
    on_links = Cluster(4, machine="1 TFLOP/s", link="1 Gbit/s, 20 us")
    times = []
    for backend in (None, "gloo"):
        trace = on_links.run(sums_a_megabyte, backend).trace
        times.append([span.duration_ns for span in trace.spans if span.name == "all_reduce"])
    assert times[0] == times[1]
    # 6 steps of a quarter of the tensor, at 125 bytes a microsecond
    assert min(times[0]) > 12_000_000


def waits_with_some():
    """Call a barrier of a group without rank 2: there torch warns, and goes on."""
    pair = dist.new_group([0, 1])
    dist.monitored_barrier(pair)
    return dist.get_rank()


@pytest.mark.processes("some")
def test_a_rank_outside_of_a_group_goes_on():
    assert Cluster(3).run(waits_with_some).results == [0, 1, 2]


def tries_nccl():
    try:
        dist.new_group(backend="nccl")
    except (RuntimeError, ValueError) as error:
        return type(error).__name__
    return "made"


@pytest.mark.processes("some")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is NCCL")
def test_a_cell_without_gpus_gets_no_nccl():
    assert set(Cluster(2, device="cpu").run(tries_nccl).results) <= {"RuntimeError", "ValueError"}
