"""The report of `ddpkit run`: speed, work and price of a step, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ddpkit import Cluster, RankError, Run, step
from ddpkit.commands.summary import all_numbers, summary
from ddpkit.trace.work import step_work

pytestmark = pytest.mark.processes

MACHINE = "1 TFLOP/s"  # memory accesses and launches take no time
ROWS, WIDTH = 64, 128
PRODUCT = 2 * ROWS * WIDTH * WIDTH  # FLOPs of a layer's forward pass


def trained(repeats: bool, amounts: dict[str, float] | None = None) -> None:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(2)]
    optimizer = torch.optim.SGD(nn.ModuleList(layers).parameters(), lr=0.1)
    for _ in range(3):
        with step(**(amounts or {})):
            x = torch.ones(ROWS, WIDTH, requires_grad=True)
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False) if repeats else layer(x)
            x.sum().backward()
            optimizer.step()


def run_of(*args: Any, n: int = 2) -> Run[None]:
    return Cluster(n, machine=MACHINE, link="unlimited").run(trained, *args)


def test_the_flops_of_a_step_are_counted_by_hand():
    """The backward pass of a layer has two products, one of them for the gradient of its input."""
    work = step_work(run_of(False).trace, 1)
    assert sorted(work) == [0, 1]
    for each in work.values():
        assert each.flops == 2 * 3 * PRODUCT
        assert each.recomputed_flops == 0
        assert each.peak_ns == pytest.approx(2 * 3 * PRODUCT / 1e3, abs=1)
        assert each.model_share == each.hardware_share == pytest.approx(1, rel=1e-3)


def test_the_backward_of_a_checkpoint_repeats_the_forward():
    plain, again = (step_work(run_of(repeats).trace, 2)[0] for repeats in (False, True))
    assert again.recomputed_flops == 2 * PRODUCT
    assert again.flops - again.recomputed_flops == plain.flops
    assert again.hardware_share > again.model_share


def test_amounts_and_prices_are_told_per_second(tmp_path: Path):
    run = run_of(False, {"tokens": 500, "images": 4})
    (each, other) = step_work(run.trace, 1).values()
    assert each.amounts == other.amounts == {"tokens": 500.0, "images": 4.0}
    found = all_numbers(run.trace, 3.6)
    seconds = found["step"]["seconds"]
    assert found["step"]["amounts"]["tokens"] == {
        "per_step": 1000.0,
        "per_second": pytest.approx(1000 / seconds),
    }
    assert found["step"]["price"]["step"] == pytest.approx(2 * seconds / 1000)
    assert found["step"]["flops_of_a_rank"] == 6 * PRODUCT
    last = found["run"]["by_rank"][1]
    four = ("compute_only", "overlapped", "exposed", "idle")
    assert sum(last[name] for name in four) == pytest.approx(last["seconds"])
    assert last["memory_bytes"]["parameters"] == 2 * 4 * WIDTH * WIDTH
    text = summary(run, 3.6)
    assert f"{1000 / seconds:,.0f} tokens/s ({500 / seconds:,.0f} on each rank)" in text
    assert "Work: 12.6 MFLOP in a step of a rank, " in text
    assert "1,000 steps of 2 machines at 3.6 an hour." in text.replace("\n  ", " ")


def test_without_a_machine_there_is_no_work():
    run = Cluster(2).run(trained, False)
    assert step_work(run.trace, 0)[0].flops == 0
    assert "Work:" not in summary(run)
    assert all_numbers(run.trace)["step"]["flops_of_a_rank"] == 0


def test_an_amount_is_a_number():
    for amount in (-1, True, "many", float("nan")):
        with pytest.raises(RankError, match=r"step\(tokens=.*give a number, 0 or more"):
            Cluster(1).run(trained, False, {"tokens": amount})


def test_values_change_no_work():
    known = step_work(run_of(True).trace, 1)
    cluster = Cluster(2, machine=MACHINE, link="unlimited", values=False)
    assert step_work(cluster.run(trained, True).trace, 1) == known


def test_the_command_writes_the_numbers(tmp_path: Path):
    from click.testing import CliRunner

    from ddpkit.commands.main import main

    script, target = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(
        "import torch\n"
        "x = torch.ones(8, 8, requires_grad=True)\n"
        "optimizer = torch.optim.SGD([x], lr=0.1)\n"
        "for _ in range(3):\n"
        "    (x @ x).sum().backward()\n"
        "    optimizer.step()\n"
    )
    words = ["run", "-n", "1", "--machine", MACHINE, "--json", str(target), "--price", "2"]
    done = CliRunner().invoke(main, [*words, str(script)])
    assert done.exit_code == 0, done.output
    found = json.loads(target.read_text())
    assert found["steps"] == 3
    assert found["step"]["flops_of_a_rank"] == 3 * 2 * 8**3
    missing = ["run", "-n", "1", "--json", str(tmp_path / "no" / "run.json"), str(script)]
    assert "cannot be written" in CliRunner().invoke(main, missing).output


def products(number: int, size: int) -> None:
    x = torch.ones(size, size)
    for _ in range(3):
        with step():
            for _ in range(number):
                x @ x
            torch.cpu.synchronize()


def test_a_host_that_limits_a_step_is_named():
    """A launch takes 10 us on the host; a product takes 2 us, or 2 ms, on the device."""
    machine = "device of 1 TFLOP/s, 10 us"
    run = Cluster(1, machine=machine).run(products, 50, 100)
    work = step_work(run.trace, 1)[0]
    assert (work.launches, work.host_ns, work.duration_ns) == (50, 500_000, 502_000)
    assert work.host_is_the_limit
    assert (
        "The host is the limit: its work takes 0.5 ms of the step's 0.5 ms, for 50 launches."
        in (summary(run).replace("\n  ", " "))
    )
    assert all_numbers(run.trace)["step"]["launches_of_a_rank"] == 50
    run = Cluster(1, machine=machine).run(products, 2, 1000)
    work = step_work(run.trace, 1)[0]
    assert (work.launches, work.host_ns) == (2, 20_000)
    assert not work.host_is_the_limit
    assert "The host is the limit" not in summary(run)
