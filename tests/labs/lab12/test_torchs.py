"""Lab 12's answers beside torch's tensor parallelism: values, norm, bytes, errors, times."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ddpkit import Cluster, span
from ddpkit.answers.lab12 import Gathered, Scattered, SlicedMLP, global_norm
from ddpkit.checks.shared.travel import sent
from ddpkit.errors import Mismatch

LINK = "1 Gbit/s, 200 us"


def whole_mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))


def some_tokens() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 8, 8)


class InParts(SlicedMLP):
    """Slices that take and return a part of the sequence."""

    def forward(self, x: Any) -> Any:
        hidden = self.activation(self.up(Gathered.apply(x)))
        return Scattered.apply(self.down(hidden)) + self.bias


def ours(in_parts: bool) -> dict[str, Any]:
    rank, n = dist.get_rank(), dist.get_world_size()
    mlp = (InParts if in_parts else SlicedMLP)(whole_mlp(), rank, n)
    x = some_tokens().chunk(n, dim=1)[rank].clone() if in_parts else some_tokens()
    with span("layer"):
        y = mlp(x.requires_grad_())
        y.square().sum().backward()
    if in_parts:  # each rank has seen a part of the tokens
        dist.all_reduce(mlp.bias.grad)
    norm = global_norm(mlp.parameters(), lambda p: p is not mlp.bias)
    gradients = [mlp.up.weight.grad, mlp.up.bias.grad, mlp.down.weight.grad, mlp.bias.grad]
    return {"y": y.detach(), "x": x.grad, "gradients": gradients, "norm": norm}


def torchs(in_parts: bool) -> dict[str, Any]:
    rank, n = dist.get_rank(), dist.get_world_size()
    enter = ColwiseParallel(input_layouts=Shard(1)) if in_parts else ColwiseParallel()
    leave = RowwiseParallel(output_layouts=Shard(1)) if in_parts else RowwiseParallel()
    mesh, plan = init_device_mesh("cpu", (n,)), {"0": enter, "2": leave}
    mlp: Any = parallelize_module(whole_mlp(), mesh, plan, src_data_rank=None)
    x = some_tokens().chunk(n, dim=1)[rank].clone() if in_parts else some_tokens()
    with span("layer"):
        y = mlp(x.requires_grad_())
        y.square().sum().backward()
        x.grad.sum()  # waits for torch's running operations
    found: Any = [p.grad for p in mlp.parameters()]
    return {
        "y": y.detach(),
        "x": x.grad,
        "gradients": [each.full_tensor() for each in found],
        "norm": nn.utils.get_total_norm(found).full_tensor().item(),
    }


def one_process() -> dict[str, Any]:
    mlp, x = whole_mlp(), some_tokens().requires_grad_()
    y = mlp(x)
    y.square().sum().backward()
    gradients: Any = [p.grad for p in mlp.parameters()]
    norm = nn.utils.get_total_norm(gradients).item()
    return {"y": y.detach(), "x": x.grad, "gradients": gradients, "norm": norm}


def side_by_side(results: list[dict[str, Any]]) -> list[Any]:
    """Return the slices' gradients as one layer's: rows of the first, columns of the second."""
    ups, biases, downs, lasts = zip(*(each["gradients"] for each in results), strict=True)
    return [torch.cat(ups), torch.cat(biases), torch.cat(downs, dim=1), lasts[0]]


@pytest.mark.processes("some")
@pytest.mark.parametrize("in_parts", [False, True])
def test_slices_agree_with_torchs_and_with_one_process(in_parts: bool) -> None:
    """Both send the same collectives of the same bytes, on an emulated cluster."""
    cluster = Cluster(2, link=LINK, machine="laptop core")
    runs, twin = [cluster.run(f, in_parts) for f in (ours, torchs)], one_process()
    for run in runs:
        assert run.trace.facts["time"] == "emulated"
        assert run.trace.duration_ms > 4 * 0.2  # at least two collectives, forward and backward
        for name in ("y", "x"):
            parts = [each[name] for each in run.results]
            whole = [torch.cat(parts, dim=1)] if in_parts else parts
            assert all(torch.allclose(each, twin[name], atol=1e-5) for each in whole)
        assert [each["norm"] for each in run.results] == pytest.approx([twin["norm"]] * 2)
    for found in (side_by_side(runs[0].results), *(each["gradients"] for each in runs[1].results)):
        pairs = zip(found, twin["gradients"], strict=True)
        assert all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)
    ours_sent, torchs_sent = ([sent(run.trace, rank, "layer") for rank in (0, 1)] for run in runs)
    assert ours_sent == torchs_sent
    assert min(ours_sent) == 2 * twin["y"].nbytes  # forward and backward, on 2 ranks


def torchs_part_alone() -> None:
    """Run torch's layers on rank 0 only: its all_reduce meets rank 1's barrier."""
    mesh, plan = init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()}
    mlp: Any = parallelize_module(whole_mlp(), mesh, plan, src_data_rank=None)
    if dist.get_rank() == 0:
        mlp(some_tokens()).sum().item()
    dist.barrier()


@pytest.mark.processes("some")
def test_a_collective_of_torchs_layers_is_explained() -> None:
    with pytest.raises(Mismatch, match="all_reduce"):
        Cluster(2).run(torchs_part_alone)


def convolved(rows: int) -> tuple[str, tuple[int, ...]]:
    mesh = init_device_mesh("cpu", (2,))
    with torch.no_grad():
        convolution: Any = distribute_module(nn.Conv2d(1, 1, 3, padding=1), mesh)
        y = convolution(distribute_tensor(torch.ones(1, 1, rows, 4), mesh, [Shard(2)]))
        return str(y.placements[0]), tuple(y.full_tensor().shape)


@pytest.mark.processes("some")
def test_torchs_convolution_of_strips_is_wrong_as_the_lesson_says() -> None:
    """A failure would mean that torch fixed the bug: then lab 12's question has another answer."""
    run = Cluster(2).run(convolved, 8)
    assert [shape for _, shape in run.results] == [(1, 1, 4, 4)] * 2  # half of 8 rows
    assert not any(span.is_send or "all_gather" in span.name for span in run.trace.spans)
