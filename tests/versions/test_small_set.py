"""The small set: features for every supported torch and Python.

`make versions` runs the set in several environments; `make test` runs the set in `.venv`.
"""

import re
import subprocess
import sys

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster, Deadlock
from tests.project.source import ROOT

pytestmark = pytest.mark.processes
CLUSTERS = {
    "real": {},
    "link": {"link": "1 Gbit/s, 50 us"},
    "machine": {"link": "1 Gbit/s, 50 us", "machine": "laptop core"},
}


@pytest.fixture(autouse=True, scope="module")
def by_value(request):
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


def sums():
    x = torch.ones(1000) * (dist.get_rank() + 1)
    dist.all_reduce(x)
    return x[0].item()


def passes_on():
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, other = torch.full((10,), float(rank)), torch.zeros(10)
    for work in (dist.isend(mine, (rank + 1) % size), dist.irecv(other, (rank - 1) % size)):
        work.wait()
    return other[0].item()


def _model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def _trained(model):
    """Return the sum of a small model's output after two steps on the rank's own inputs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.full((2, 4), dist.get_rank() + 1.0)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model(torch.ones(2, 4)).sum().item()


def trains_ddp():
    return _trained(DistributedDataParallel(_model()))


def trains_fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return _trained(model)


def alone(divisor=2):
    """Train in a single process on the gradients of both ranks, summed and divided."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        for rank in range(2):
            (model(torch.full((2, 4), rank + 1.0)).square().mean() / divisor).backward()
        optimizer.step()
    return model(torch.ones(2, 4)).sum().item()


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("function", [sums, passes_on, trains_ddp, trains_fsdp2])
def test_ranks_give_the_right_values(function, cluster):
    run = Cluster(2, **CLUSTERS[cluster]).run(function, timeout=120)
    # FSDP2 of torch 2.7.1 adds gradients on gloo, without the kit too: gloo had no average.
    adds = function is trains_fsdp2 and torch.__version__ < "2.8"
    trained = [pytest.approx(alone(1 if adds else 2), rel=1e-4)] * 2
    assert run.results == {"sums": [3.0, 3.0], "passes_on": [1.0, 0.0]}.get(
        function.__name__, trained
    )
    assert {span.rank for span in run.trace.spans if span.is_comm} == {0, 1}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_failed_run_is_explained(cluster):
    def waits():
        dist.recv(torch.zeros(1), src=1 - dist.get_rank())

    with pytest.raises(Deadlock) as caught:
        Cluster(2, **CLUSTERS[cluster]).run(waits, timeout=60)
    assert caught.value.cause == "receive"
    assert re.search(r"rank.* 0.*\n.*test_small_set.py, line \d+: dist.recv", str(caught.value))


@pytest.mark.parametrize("way", [[], ["--as-graded"]], ids=["check", "grade"])
def test_a_solved_lab_is_right(way):
    lab = ROOT / "solutions" / "00_ranks.ipynb"
    command = [sys.executable, "-m", "ddpkit", "check", *way, str(lab)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓" in done.stdout
    assert "✗" not in done.stdout
