"""Plans of a mesh: groups, and a step event by event, compared with closed forms."""

import pytest
import torch

from ddpkit.link import Link
from ddpkit.simulate import (
    MeshMachine,
    MeshModel,
    MeshPlan,
    cost,
    mesh_groups,
    pipeline_plans,
    pipeline_time,
    plan_time,
)

MODEL = MeshModel(blocks=4, width=8, hidden=32, batch=64)
FREE = MeshMachine(1e9, 10**6, 2, "unlimited", "unlimited")
FAR = MeshMachine(1e18, 10**6, 2, "10 Gbit/s, 20 us", "1 Gbit/s, 200 us")
# ns of one matrix of a block, all rows, forward
MATRIX = 2 * 64 * 8 * 32


@pytest.mark.parametrize("shape", [(2, 2, 4), (3, 1, 2), (1, 1, 1), (4, 3)])
def test_groups_are_the_lines_of_the_mesh(shape):
    names = ("replica", "stage", "slice")[: len(shape)]
    found = mesh_groups(dict(zip(names, shape, strict=True)))
    mesh = torch.arange(torch.tensor(shape).prod()).reshape(shape)
    for axis, name in enumerate(names):
        lines = mesh.movedim(axis, -1).reshape(-1, shape[axis])
        assert sorted(found[name]) == sorted(lines.tolist())


def test_no_dimension_is_empty():
    with pytest.raises(ValueError, match="1 rank or more"):
        mesh_groups({"slice": 0})
    with pytest.raises(ValueError, match="must each be 1 or more"):
        MeshPlan(slices=0)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (MeshPlan(stages=3), "4 blocks cannot be divided equally among 3"),
        (MeshPlan(slices=5), "32 hidden numbers"),
        (MeshPlan(2, micro=5), "64 rows of the batch cannot be divided equally among 10"),
    ],
)
def test_a_plan_divides_the_model(plan, what):
    with pytest.raises(ValueError, match=what):
        plan_time(plan, MODEL, FREE)


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 1, 2), (2, 2, 4)])
def test_without_a_network_only_bubbles_are_lost(shape):
    replicas, stages, slices = shape
    plan = MeshPlan(*shape, micro=4)
    alone = 4 * 6 * MATRIX / (replicas * slices) / stages
    step = plan_time(plan, MODEL, FREE).end_ns
    assert step == alone / 4 * (4 + stages - 1)


def test_slices_add_up_twice_a_block_and_micro_batch():
    trace = plan_time(MeshPlan(slices=2, micro=4), MODEL, FAR)
    link, travels = Link.parse(FAR.inside), 4 * 16 * 8
    assert trace.end_ns == 2 * 4 * 4 * cost("ring", 2, travels, link)
    descriptions = {span.args["group_desc"] for span in trace.spans if span.is_comm}
    assert descriptions == {"slice [0, 1]"}


def test_stages_are_a_pipeline_of_1f1b():
    machine = MeshMachine(1e8, 10**6, 1, "unlimited", "1 Mbit/s, 200 us")
    forward, nbytes = 2 * MATRIX * 10 / 8e9, 4 * 8 * 8
    alone = pipeline_time(
        pipeline_plans("1f1b", 4, 8),
        forward=forward,
        backward=2 * forward,
        link="1 Mbit/s, 200 us",
        nbytes=nbytes,
    )
    trace = plan_time(MeshPlan(stages=4, micro=8), MODEL, machine)
    assert trace.end_ns == alone.end_ns


@pytest.mark.parametrize("shards", [False, True])
def test_replicas_add_up_once_a_step(shards):
    trace = plan_time(MeshPlan(2, micro=4, shards=shards), MODEL, FAR)
    assert trace.end_ns == 4 * cost("ring", 2, 4 * 2 * 8 * 32, Link.parse(FAR.inside))
    names = {span.name for span in trace.spans if span.is_comm}
    gathered = {"reduce_scatter", "all_gather"}
    assert names == (gathered if shards else {"all_reduce"})


def test_the_last_backward_hides_gradients():
    slow = MeshMachine(1e8, 10**6, 1, "unlimited", "100 Mbit/s")
    compute = 4 * 6 * MATRIX * 10 / 2
    step = plan_time(MeshPlan(2), MODEL, slow).end_ns
    one = cost("ring", 2, 4 * 2 * 8 * 32, Link.parse("100 Mbit/s"))
    assert 4 * one > step - compute
    assert step - compute == max(one, 4 * one - 3 * 4 * MATRIX * 10 / 2)


@pytest.mark.parametrize(
    ("ranks", "stride", "seconds"),
    [
        (1, 1, 0.0),
        (2, 1, 2 * (20e-6 + 500 / 1.25e9)),
        (2, 2, 2 * (200e-6 + 500 / 1.25e8)),  # two groups take turns on a link
        (4, 1, 6 * (110e-6 + (250 / 1.25e9 + 250 / 1.25e8) / 2)),  # every other hop is long
        (4, 4, 6 * (200e-6 + 250 / 1.25e8)),
    ],
)
def test_an_all_reduce_knows_the_hosts_that_it_spans(ranks, stride, seconds):
    assert FAR.all_reduce(1000, ranks, stride) == pytest.approx(seconds)


def test_groups_share_what_a_host_sends():
    mb = 10**6
    assert FAR.all_reduce(mb, 2, 2) == pytest.approx(2 * 2 * mb / 2 / 1.25e8)


def test_a_message_along_a_line_is_the_mean_of_all():
    near, far = 20e-6 + 1000 / 1.25e9, 200e-6 + 1000 / 1.25e8
    assert FAR.message(1000, 1, 1) == 0
    assert FAR.message(1000, 2, 1) == pytest.approx(near)
    assert FAR.message(1000, 4, 1) == pytest.approx((2 * near + far) / 3)
    assert FAR.message(1000, 2, 2) == pytest.approx(far + 1000 / 1.25e8)


def test_texts():
    assert str(MeshPlan(2, 1, 4, 8, True)) == "2 × 1 × 4, 8 micro, shards"
    assert MeshPlan(2, 3, 4).shape == {"replica": 2, "stage": 3, "slice": 4}
    assert str(FREE).startswith("2 ranks a host, 1 GFLOP/s")
    assert MODEL.parameters == 4 * 2 * 8 * 32
