"""Programs on real ranks: torch's calls take the times that the engine computes, to the ns."""

import math
import time

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, busy
from ddpkit.simulate import (
    After,
    CollectivePart,
    Gradient,
    MessageEnd,
    Program,
    ShardUnit,
    Step,
    Work,
    assign_buckets,
    pipeline_plans,
    play_program,
    shard_program,
    step_program,
)
from ddpkit.simulate.step.pipeline import pipeline_program

pytestmark = pytest.mark.processes
N, LINK = 4, {"default": "1 Gbit/s, 200 us", 2: "400 Mbit/s"}
STEP = Step(
    3_000_000,
    tuple(Gradient(f"p{i}", 80_000 + 40_000 * i, 2_000_000 * (i + 1)) for i in range(6)),
    1_000_000,
)
UNITS = [ShardUnit(400_000 * (1 + i % 2), 3_000_000, 6_000_000) for i in range(3)]
AHEAD = 1


def buffers(step, world_size):
    """Return the tensors of a part in a collective, and torch's call."""
    whole = torch.zeros(step.schedule.length // 4)
    share = torch.zeros(step.schedule.length // 4 // world_size)
    return {
        "all_reduce": (dist.all_reduce, whole),
        "all_gather": (dist.all_gather_into_tensor, whole, share),
        "reduce_scatter": (dist.reduce_scatter_tensor, share, whole),
    }[step.schedule.operation]


def take(lane, groups):
    """Do the steps of a lane by torch's calls, on a rank."""
    handles = {}
    for step in lane:
        if isinstance(step, Work):
            busy(step.ns / 1e9)
        elif isinstance(step, After):
            for name in step.handles:
                if name in handles:  # handles of work need no wait: the work is over
                    handles[name].wait()
        elif isinstance(step, MessageEnd):
            buffer = torch.zeros(step.nbytes, dtype=torch.uint8)
            work = getattr(dist, step.op)(buffer, step.peer, tag=step.tag)
            handles[step.handle] = work
        else:
            call, *tensors = buffers(step, dist.get_world_size())
            work = call(*tensors, group=groups[step.group], async_op=step.async_op)
            handles[step.handle] = work


def measured(lanes_of, names):
    """Return the ns of each program on this rank, from a common start."""
    groups, took = {"": None} | {name: dist.new_group() for name in names}, []
    for lanes in lanes_of:
        dist.barrier()
        start = time.perf_counter_ns()
        take(lanes[dist.get_rank()], groups)
        took.append(time.perf_counter_ns() - start)
    return took


def on_one_lane():
    """Return a step on sharded parameters as torch runs it: one thread posts gathers and
    scatters."""
    parts = {}
    for name in ("gather", "scatter"):
        for action in shard_program(UNITS, N, ahead=AHEAD).ranks[0][name]:
            if isinstance(action, CollectivePart):
                parts[action.handle] = action
    order = [("F", i) for i in range(len(UNITS))]
    order += [("B", i) for i in reversed(range(len(UNITS)))]

    def posted(name, i):
        part = parts[name, i]
        return CollectivePart(
            part.schedule, part.members, part.number, group=part.group, async_op=True,
            handle=part.handle,
        )  # fmt: skip

    lane = [posted(f"gathered {kind}", i) for kind, i in order[: AHEAD + 1]]
    for number, (kind, i) in enumerate(order):
        unit = UNITS[i]
        lane.append(After(((f"gathered {kind}", i),)))
        lane.append(Work(unit.forward_ns if kind == "F" else unit.backward_ns))
        if number + AHEAD + 1 < len(order):
            kind_then, then = order[number + AHEAD + 1]
            lane.append(posted(f"gathered {kind_then}", then))
        if kind == "B":
            lane.append(posted("scattered", i))
    return [*lane, After(tuple(("scattered", i) for i in range(len(UNITS))))]


def test_real_ranks_take_what_the_engine_says():
    """torch's own calls of a step on one process group and on two in turn, a pipeline, and
    shards."""
    buckets = assign_buckets(STEP.gradients, 0.2)
    steps = [STEP.slowed(1 + rank / 4) for rank in range(N)]
    programs = [step_program(steps, buckets), step_program(steps, buckets, streams=2)]
    for blocking in (False, True):
        times = (4_000_000, 8_000_000, 4_000_000)
        programs.append(pipeline_program(pipeline_plans("gpipe", N, 3), times, 80_000, blocking))
    lanes_of = [[rank["main"] for rank in program.ranks] for program in programs]
    programs.append(shard_program(UNITS, N, ahead=AHEAD))
    lanes_of.append([on_one_lane()] * N)
    told = [play_program(program, LINK).ends_ns for program in programs]
    assert told[-1] == play_program(Program.of_lanes("", lanes_of[-1]), LINK).ends_ns
    names = ("0", "1", "all_gather", "reduce_scatter")
    run = Cluster(N, link=LINK, speed=math.inf).run(measured, lanes_of, names)
    assert list(zip(*run.results, strict=True)) == told
