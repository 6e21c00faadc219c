"""The host's cost of an operation by phase: Python's in forward and optimizer, autograd's."""

import time
from itertools import pairwise

import pytest
import torch
from torch import nn

from benchmarks._report import Figure, Sample
from benchmarks.gpus import H100, MEASURED, stored
from ddpkit import Cluster
from ddpkit.machine import MachineModel
from ddpkit.measure import _phases

HOST = "device of 1 PFLOP/s, 4 us; forward 100 us, backward 20 us, optimizer 50 us"


def test_phases_are_read_and_written() -> None:
    machine = MachineModel.parse(HOST)
    assert machine.phases == {"forward": 1e5, "backward": 2e4, "optimizer": 5e4}
    assert machine.as_json()["phases_us"] == {"forward": 100, "backward": 20, "optimizer": 50}
    part = MachineModel.parse("device of A100; backward 20 us; bus 25 GB/s")
    assert (part.phases, part.launch_ns, part.bus) == ({"backward": 2e4}, 5e3, 25e9)
    with pytest.raises(ValueError, match="cannot read 'forward 20 GB/s' in the machine"):
        MachineModel.parse("device of A100; forward 20 GB/s")
    with pytest.raises(ValueError, match="cannot read 'inward 20 us' in the machine"):
        MachineModel.parse("device of A100; forward 20 us, inward 20 us")


@pytest.mark.processes
def test_each_phase_has_its_cost() -> None:
    """The forward has 3 products without biases, a square and a mean (5 × 100).

    Python makes the loss's gradient (100). The engine does the mean's division, the square's power
    and two products, 5 products for 3 layers, and 3 sums with the gradients of the step before (12
    × 20). SGD without momentum works on one list (50).
    """

    def program() -> list[int]:
        net = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(3)))
        optimizer, x, times = torch.optim.SGD(net.parameters(), lr=0.1), torch.ones(8, 8), []
        for _ in range(2):
            torch.cpu.synchronize()
            at = [time.perf_counter_ns()]
            loss = net(x).square().mean()
            at.append(time.perf_counter_ns())
            loss.backward()
            at.append(time.perf_counter_ns())
            optimizer.step()
            at.append(time.perf_counter_ns())
            times = [(end - start) // 1000 for start, end in pairwise(at)]
        return times

    assert Cluster(1, machine=HOST).run(program).results == [[500, 340, 50]]


@pytest.mark.processes
def test_a_convolutions_backward_is_a_kernel_for_each_gradient() -> None:
    """The gradients of weight and bias take 2 launches of 4.

    With the input's gradient there are 3.
    """

    def program() -> list[int]:
        net, took = nn.Conv2d(3, 4, 3), []
        for needs in (False, True):
            x = torch.ones(1, 3, 8, 8, requires_grad=needs)
            out = net(x)
            grad = torch.ones_like(out)
            start = time.perf_counter_ns()
            out.backward(grad)
            took.append((time.perf_counter_ns() - start) // 1000)
            net.zero_grad()
        return took

    assert Cluster(1, machine="device of 1 PFLOP/s, 4 us").run(program).results == [[8, 12]]


def test_phases_are_measured() -> None:
    """The processor is measured in the same way as a GPU."""
    found = _phases("cpu")
    assert sorted(found) == ["backward", "forward", "optimizer"]
    assert all(100 < ns < 1e7 for ns in found.values())


@pytest.mark.processes
def test_five_programs_on_an_h100_are_within_a_quarter() -> None:
    """The steps of 5.2 to 10.5 ms were measured on an H100: the host limits four of the steps."""
    rows = stored(str(H100))
    ratios = {row.name.partition(":")[0]: _median(row) for row in rows}
    assert sorted(ratios) == sorted(MEASURED)
    assert {name: ratio for name, ratio in ratios.items() if not 0.8 < ratio < 1.25} == {}


def _median(row: Figure) -> float:
    assert isinstance(row.ours, Sample)
    return row.ours.median
