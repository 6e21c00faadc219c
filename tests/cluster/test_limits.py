"""Waits longer than the timeout of a process group: no run ends, and each wait is named."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import constants

from ddpkit import Cluster
from ddpkit.commands.run import launched
from ddpkit.rank.script.joining import MINUTES, MINUTES_NCCL

EMULATED: dict[str, dict[str, Any]] = {
    "link": {"link": "1 Gbit/s, 20 us"},
    "machine": {"machine": "1 TFLOP/s", "link": "1 Gbit/s, 20 us"},
}
in_emulated_time = pytest.mark.parametrize("network", EMULATED.values(), ids=EMULATED)


def works(minutes: list[float]) -> None:
    time.sleep(60 * minutes[dist.get_rank()])
    dist.all_reduce(torch.ones(2))


def sends(minutes: float) -> None:
    if dist.get_rank() == 0:
        time.sleep(60 * minutes)
        dist.send(torch.ones(2), 1)
    else:
        dist.recv(torch.ones(2), 0)


def posts_early() -> None:
    work = dist.all_reduce(torch.ones(2), async_op=True)
    time.sleep(2400)
    work.wait()


@pytest.mark.processes
@in_emulated_time
def test_a_longer_wait_than_gloo_allows(
    network: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(2, **network)
    cluster.run(works, [40, 0])
    line = works.__code__.co_firstlineno + 2
    assert (
        "A real job would have ended here: rank 1 waited 40 min for rank 0 in the all_reduce of "
        f"line {line}, and the process group's timeout is 30 min."
    ) in " ".join(capsys.readouterr().out.split())
    cluster.run(sends, 31)
    assert "rank 1 waited 31 min for rank 0 in the recv" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.processes
@in_emulated_time
def test_right_programs(network: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(2, **network)
    cluster.run(works, [40, 40])
    cluster.run(works, [40, 11])
    cluster.run(sends, 29)
    cluster.run(posts_early)
    assert capsys.readouterr().out == ""


@pytest.mark.processes
def test_real_time(capsys: pytest.CaptureFixture[str]) -> None:
    Cluster(2).run(works, [0.001, 0])
    assert capsys.readouterr().out == ""


SCRIPT = """
import time, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group({arguments})
time.sleep(900 * (1 - dist.get_rank()))
dist.all_reduce(torch.ones(2))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ("'gloo'", ""),
        ("'nccl'", "10 min"),
        ("'nccl', timeout=timedelta(hours=1)", ""),
        ("'gloo', timeout=timedelta(seconds=90)", "90 s"),
    ],
)
def test_the_limit_of_a_script(
    tmp_path: Path, arguments: str, limit: str, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(arguments=arguments))
    cluster = Cluster(2, device="cpu", link="1 Gbit/s, 20 us")
    cluster.run(launched(str(script), (), False, cluster))
    said = " ".join(capfd.readouterr().err.split())
    assert ("A real job would have ended" in said) is bool(limit)
    assert f"timeout is {limit}" in said or not limit


def test_the_defaults_are_torchs() -> None:
    assert timedelta(minutes=MINUTES) == constants.default_pg_timeout
    assert constants.default_pg_nccl_timeout in (None, timedelta(minutes=MINUTES_NCCL))
