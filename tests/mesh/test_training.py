"""Replicas, stages and slices together train like one process, in the predicted time."""

import pytest
import torch
from torch.nn.functional import mse_loss

from ddpkit import Cluster
from ddpkit.errors import RankError
from ddpkit.mesh import MeshTraining, train_on_mesh
from ddpkit.mesh.training import waves
from ddpkit.simulate import MeshMachine, MeshModel, MeshPlan, plan_time

pytestmark = pytest.mark.processes

MODEL = MeshModel(blocks=4, width=6, hidden=12, batch=24)
STEPS = 2
PLANS = [
    MeshPlan(2, 2, 1, 3, shards=True),
    MeshPlan(2, 1, 2, 1),
    MeshPlan(1, 2, 2, 4),
]


def trained(plan):
    """Return the losses of this rank, and its slices of its blocks."""
    training = MeshTraining(plan, MODEL, lr=0.01)
    losses = [training.step() for _ in range(STEPS)]
    weights = [(block.up.detach(), block.down.detach()) for block in training.blocks]
    return losses, [torch.stack([up, down.t()]) for up, down in weights]


def alone():
    """Return the losses of one process, and its blocks, [2, hidden, width] each."""
    blocks = []
    for number in range(MODEL.blocks):
        drawn = torch.Generator().manual_seed(number)
        up = torch.randn(MODEL.hidden, MODEL.width, generator=drawn) / MODEL.width**0.5
        down = torch.randn(MODEL.width, MODEL.hidden, generator=drawn) / MODEL.hidden**0.5
        blocks.append((up.requires_grad_(), down.requires_grad_()))
    optimizer = torch.optim.AdamW([p for pair in blocks for p in pair], lr=0.01)
    x, target = (waves(range(MODEL.batch), MODEL.width, phase) for phase in (0.0, 1.0))
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        y = x
        for up, down in blocks:
            y = y + (y @ up.t()).relu() @ down.t()
        loss = mse_loss(y, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [torch.stack([up, down.t()]).detach() for up, down in blocks]


def compare(plan, results):
    losses, blocks = alone()
    for rank, (own, weights) in enumerate(results):
        stage = rank // plan.slices % plan.stages
        many = MODEL.blocks // plan.stages
        cut = torch.arange(MODEL.hidden).chunk(plan.slices)[rank % plan.slices]
        for weight, right in zip(weights, blocks[stage * many : (stage + 1) * many], strict=True):
            torch.testing.assert_close(weight, right[:, cut], rtol=1e-4, atol=1e-5)
        assert (sum(own) > 0) == (stage == plan.stages - 1)
    for step, loss in enumerate(losses):
        assert sum(own[step] for own, _ in results) / plan.slices == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_it_is_one_process_in_the_time_that_is_predicted(plan):
    machine = MeshMachine(1e7, 10**6, 2, "10 Mbit/s, 20 us", "1 Mbit/s, 200 us")
    run = Cluster(4, machine=machine.machine, link=machine.link).run(trained, plan)
    compare(plan, run.results)
    assert steps_ns(run) == [plan_time(plan, MODEL, machine).end_ns] * STEPS


def test_sixteen_ranks_on_a_mesh_of_2_by_2_by_4():
    plan = MeshPlan(2, 2, 4, 2, shards=True)
    machine = MeshMachine(1e7, 10**6, 4, "10 Mbit/s, 20 us", "1 Mbit/s, 200 us")
    run = Cluster(16, machine=machine.machine, link=machine.link).run(trained, plan)
    compare(plan, run.results)
    assert steps_ns(run) == [plan_time(plan, MODEL, machine).end_ns] * STEPS
    named = {span.args["group_desc"] for span in run.trace.of(5) if "group_desc" in span.args}
    assert named >= {"slice [4, 5, 6, 7]", "stage [1, 5]", "replica [5, 13]"}


def steps_ns(run):
    windows = run.trace.step_windows.values()
    return [max(own[step][1] - own[step][0] for own in windows) for step in range(STEPS)]


def test_a_plan_for_other_ranks_is_refused():
    with pytest.raises(RankError, match="needs 4 ranks, but the run has 1"):
        Cluster(1).run(train_on_mesh, MeshPlan(4), MODEL)
    with pytest.raises(RankError, match="name each of"):
        Cluster(1).run(train_on_mesh, MeshPlan(), MODEL, order=("slice",))
