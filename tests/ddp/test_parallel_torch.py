"""torch's features on top of process groups work in a Cluster, with the results of one process."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore::FutureWarning")]

WIDTH = 8


class Block(nn.Module):
    """Two layers; the second undoes the widening by the first."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def blocks(count=2):
    """Return a model that is the same on each rank and in each process."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(count)))


def batch(rows=12):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, WIDTH, generator=generator)


def mine(rows):
    """Return this rank's part of a batch."""
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def trained(model, optimizer, x, steps=3):
    """Train a model for some steps on the mean of squares; return the model without gradients."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model


def twin(steps=3):
    """Return the parameters of one process that trains on the whole batch."""
    model = blocks()
    trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), batch(), steps)
    return dict(model.named_parameters())


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def names(run, rank=0):
    return [span.name for span in run.trace.spans if span.is_comm and span.rank == rank]


# Functional collectives


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_functional_collectives_are_those_of_plain_torch(world_size):
    def both():
        from torch.distributed import _functional_collectives as functional

        rank, size = dist.get_rank(), dist.get_world_size()
        gather = getattr(functional, "all_gather_single", functional.all_gather_tensor)
        scatter = getattr(functional, "reduce_scatter_single", functional.reduce_scatter_tensor)
        x = torch.arange(2.0 * size) + rank
        sent, received = [i + 1 for i in range(size)], [rank + 1] * size

        def values(group):
            y = x.clone().requires_grad_()
            gathered = functional.all_gather_tensor_autograd(y, 0, group)
            (gathered * torch.arange(float(len(gathered)))).sum().backward()
            given = [
                functional.all_reduce(x, "sum", group),
                functional.broadcast(x, 0, group),
                gather(x, 0, group),
                scatter(x, "sum", 0, group),
                functional.all_to_all_single(torch.arange(float(sum(sent))), received, sent, group),
                *functional.all_reduce_coalesced([x, 2 * x], "max", group),
                functional.permute_tensor(x, [*range(1, size), 0], group),
            ]
            return [tensor + 0 for tensor in given] + [y.grad]

        return values(dist.group.WORLD), values(dist.new_group.__wrapped__(backend="gloo"))

    for ours, torchs in Cluster(world_size).run(both).results:
        torch.testing.assert_close(ours, torchs, rtol=0, atol=0)


@pytest.mark.parametrize("world_size", [2, 3])
def test_messages_posted_as_a_batch(world_size):
    def ring():
        rank, size = dist.get_rank(), dist.get_world_size()
        left, right = torch.zeros(2), torch.zeros(2)
        x = torch.full((2,), float(rank))
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, x, (rank + 1) % size),
                dist.P2POp(dist.isend, x, (rank - 1) % size, tag=1),
                dist.P2POp(dist.irecv, left, (rank - 1) % size),
                dist.P2POp(dist.irecv, right, (rank + 1) % size, tag=1),
            ]
        )
        for work in works:
            work.wait()
        return left[0].item(), right[0].item()

    run = Cluster(world_size).run(ring)
    expected = [((r - 1) % world_size, (r + 1) % world_size) for r in range(world_size)]
    assert run.results == expected


# DTensor and tensor parallelism


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_dtensors_redistribute_and_multiply_as_whole_tensors_do(world_size):
    def products():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        a, b = torch.arange(30.0).reshape(5, 6), torch.arange(24.0).reshape(6, 4)
        rows, columns = (
            distribute_tensor(a, mesh, [Shard(0)]),
            distribute_tensor(a, mesh, [Shard(1)]),
        )
        inner = distribute_tensor(b, mesh, [Shard(0)])
        partial = columns @ inner
        return [
            rows.full_tensor(),
            rows.redistribute(mesh, [Shard(1)]).full_tensor(),
            columns.redistribute(mesh, [Replicate()]).to_local(),
            partial.full_tensor(),
            partial.redistribute(mesh, [Shard(0)]).full_tensor(),
            (rows @ distribute_tensor(b, mesh, [Replicate()])).full_tensor(),
        ], rows.redistribute(mesh, [Shard(1)]).to_local()

    a, b = torch.arange(30.0).reshape(5, 6), torch.arange(24.0).reshape(6, 4)
    run = Cluster(world_size).run(products)
    for rank, (whole, part) in enumerate(run.results):
        same(whole, [a, a, a, a @ b, a @ b, a @ b])
        chunks = [
            *a.chunk(world_size, dim=1),
            a[:, :0],
        ]  # the last of 4 ranks has none of the 6 columns
        same(part, chunks[min(rank, len(chunks) - 1)])


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence parallel"])
def test_columns_then_rows_give_the_gradients_of_one_process(world_size, sequence):
    def parallel():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            SequenceParallel,
            parallelize_module,
        )

        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
        torch.manual_seed(0)
        model = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH))
        layouts = (
            {
                "0": SequenceParallel(),
                "1": ColwiseParallel(input_layouts=Shard(1)),
                "2": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            }
            if sequence
            else {"1": ColwiseParallel(), "2": RowwiseParallel()}
        )
        parallelize_module(model, mesh, layouts)
        x = torch.arange(2.0 * 4 * WIDTH).reshape(2, 4, WIDTH).sin()
        y = model(x.chunk(dist.get_world_size(), dim=1)[dist.get_rank()] if sequence else x)
        y = y.full_tensor() if isinstance(y, DTensor) else y
        y.square().sum().backward()
        return y.detach() + 0, [
            p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
            for p in model.parameters()
        ]

    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH))
    y = model(torch.arange(2.0 * 4 * WIDTH).reshape(2, 4, WIDTH).sin())
    y.square().sum().backward()
    run = Cluster(world_size).run(parallel)
    for found, grads in run.results:
        same(found, y.detach())
        same(grads, [p.grad for p in model.parameters()])
    kinds = set(names(run))
    assert kinds >= (
        {"all_gather_into_tensor", "reduce_scatter_tensor"} if sequence else {"all_reduce"}
    )


def test_loss_parallel_is_the_loss_of_the_whole():
    def loss():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        from torch.distributed.tensor.parallel import loss_parallel

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        x = torch.arange(24.0).reshape(4, 6).sin()
        logits = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        with loss_parallel():
            value = nn.functional.cross_entropy(logits, torch.tensor([0, 5, 2, 3]))
            value.backward()
        return value.full_tensor().item(), logits.grad.full_tensor()

    x = torch.arange(24.0).reshape(4, 6).sin().requires_grad_()
    expected = nn.functional.cross_entropy(x, torch.tensor([0, 5, 2, 3]))
    expected.backward()
    for value, gradient in Cluster(3).run(loss).results:
        assert value == pytest.approx(expected.item())
        same(gradient, x.grad)


# Sharded state


@pytest.mark.parametrize(
    ("shape", "reshard"), [((2,), True), ((3,), True), ((4,), True), ((4,), False), ((2, 2), True)]
)
def test_fully_shard_trains_as_one_process_does(shape, reshard):
    def trains():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        dims = ("replicate", "shard")[-len(shape) :]
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=dims)
        model = blocks()
        for block in (*model, model):
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
        trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), mine(batch()))
        held = sum(p.to_local().numel() for p in model.parameters())
        return {name: p.full_tensor() for name, p in model.named_parameters()}, held

    run = Cluster(max(shape[0], len(shape) * shape[0])).run(trains)
    whole = sum(p.numel() for p in blocks().parameters())
    for parameters, held in run.results:
        same(parameters, {name: p.detach() for name, p in twin().items()})
        assert held <= whole / shape[-1] * 1.5
    # without the gathers of full_tensor
    gathers = names(run).count("all_gather_into_tensor") - len(twin())
    assert gathers == 3 * 2 * (2 if reshard else 1)
    assert names(run).count("reduce_scatter_tensor") == 3 * 2
    if len(shape) == 2:
        in_groups = {
            s.args.get("group_desc", "").split(" ")[0] for s in run.trace.spans if s.is_comm
        }
        assert in_groups >= {"replicate", "shard"}


@pytest.mark.parametrize("world_size", [2, 3])
def test_an_optimizer_with_its_state_dealt_out(world_size):
    def trains():
        from torch.distributed.optim import ZeroRedundancyOptimizer
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(blocks())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
        trained(model, optimizer, mine(batch()))
        return dict(model.module.named_parameters()), len(optimizer.optim.state)

    run = Cluster(world_size).run(trains)
    expected = twin()
    for parameters, _ in run.results:
        same(parameters, expected)
    assert sum(states for _, states in run.results) == len(expected)


def test_a_checkpoint_of_shards_is_saved_and_loaded(tmp_path):
    def saves(folder):
        import torch.distributed.checkpoint as checkpoint
        from torch.distributed.checkpoint.state_dict import get_model_state_dict
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(blocks())
        trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), mine(batch()))
        checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
        fresh = fully_shard(blocks())
        state = {"model": get_model_state_dict(fresh)}
        checkpoint.load(state, checkpoint_id=folder)
        return {name: value.full_tensor() for name, value in state["model"].items()}

    def loads(folder):
        import torch.distributed.checkpoint as checkpoint

        state = {"model": blocks().state_dict()}
        checkpoint.load(state, checkpoint_id=folder)
        return state["model"]

    expected = {name: p.detach() for name, p in twin().items()}
    for found in Cluster(2).run(saves, str(tmp_path / "two")).results:
        same(found, expected)
    for found in Cluster(3).run(loads, str(tmp_path / "two")).results:  # on other ranks, unsharded
        same(found, expected)


# Pipelines


@pytest.mark.parametrize(
    ("schedule", "stages"),
    [("ScheduleGPipe", 1), ("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2)],
)
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_pipeline_gives_the_gradients_of_one_process(schedule, stages, world_size):
    def stage(model, number, of):
        from torch.distributed.pipelining import PipelineStage

        return PipelineStage(model[number], number, of, torch.device("cpu"))

    def pipelined():
        from torch.distributed import pipelining

        rank, size = dist.get_rank(), dist.get_world_size()
        model = blocks(size * stages)
        parts = [stage(model, rank + size * i, size * stages) for i in range(stages)]
        make = getattr(pipelining, schedule)
        run = make(
            parts if stages > 1 else parts[0],
            n_microbatches=4,
            loss_fn=lambda y, target: (y - target).square().mean(),
        )
        x, losses = batch(8), []
        last = rank == size - 1
        inputs = [x] if rank == 0 else []
        goal = {"target": torch.zeros(8, WIDTH), "losses": losses} if last else {}
        run.step(*inputs, **goal)
        found = {
            f"{part.stage_index}.{name}": p.grad
            for part in parts
            for name, p in part.submod.named_parameters()
        }
        return found, [loss.item() for loss in losses]

    run = Cluster(world_size).run(pipelined)
    model = blocks(world_size * stages)
    loss = model(batch(8)).square().mean()
    loss.backward()
    found = {name: grad for result, _ in run.results for name, grad in result.items()}
    same(found, {name: p.grad for name, p in model.named_parameters()})
    assert sum(run.results[-1][1]) / 4 == pytest.approx(loss.item())
