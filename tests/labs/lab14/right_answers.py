"""Right answers to lab 14, different from the solution."""

import itertools
import math

from ddpkit.simulate import MeshPlan
from tests.labs.answers import right

# groups_of


@right("groups_of")
def by_coordinates(shape):
    sizes = list(shape.values())
    ranks = {at: rank for rank, at in enumerate(itertools.product(*map(range, sizes)))}
    found = {}
    for axis, name in enumerate(shape):
        lines = {}
        for at, rank in ranks.items():
            lines.setdefault(at[:axis] + at[axis + 1 :], []).append(rank)
        found[name] = list(lines.values())
    return found


@right("groups_of")
def by_strides(shape):
    ranks, stride, found = math.prod(shape.values()), 1, {}
    for name, size in reversed(shape.items()):
        found[name] = [
            tuple(range(first, first + size * stride, stride))
            for first in reversed(range(ranks))
            if first // stride % size == 0
        ]
        stride *= size
    return found


# step_cost


@right("step_cost")
def term_by_term(plan, model, machine):
    rows = model.batch / plan.replicas / plan.micro
    flops = 6 * model.batch * model.parameters / machine.flops / plan.ranks
    numbers = 4 * rows * model.width
    here = model.blocks / plan.stages
    sums = 2 * plan.micro * here * machine.all_reduce(numbers, plan.slices, 1)
    bubble = (plan.stages - 1) / plan.micro
    hop = machine.message(numbers, plan.stages, plan.slices)
    trips = (plan.micro - 1) / plan.stages + 1
    whole = 4 * 2 * model.width * model.hidden / plan.slices
    one = machine.all_reduce(whole, plan.replicas, plan.stages * plan.slices)
    gathered = here * one / 2 if plan.shards else 0
    one = one / 2 if plan.shards else one
    backward = 4 * rows * whole / 4 / machine.flops
    waits = one + (here - 1) * max(0, one - backward)
    return (flops + sums) * (1 + bubble) + 2 * (plan.stages - 1) * hop * trips + waits + gathered


# plan_bytes


@right("plan_bytes")
def part_by_part(plan, model):
    own = model.parameters / plan.stages / plan.slices
    adam = 8 * own / plan.replicas if plan.shards else 8 * own
    rows = model.batch / plan.replicas / plan.micro
    block = 4 * rows * (model.width + model.hidden / plan.slices)
    live = plan.stages if plan.micro > plan.stages else plan.micro
    return int(4 * own + 4 * own + adam + block * live * model.blocks / plan.stages)


# best_plan


@right("best_plan")
def best_so_far(model, machine, ranks, cost, size):
    """Loop over sizes, and ask `check` if a plan divides the model."""
    best, least = None, math.inf
    for replicas in range(1, ranks + 1):
        for stages in range(1, ranks // replicas + 1):
            for micro in range(1, model.batch + 1):
                for shards in (True, False):
                    slices = ranks // (replicas * stages)
                    if replicas * stages * slices != ranks or (shards and replicas == 1):
                        continue
                    plan = MeshPlan(replicas, stages, slices, micro, shards)
                    try:
                        model.check(plan)
                    except ValueError:
                        continue
                    if size(plan, model) > machine.memory:
                        continue
                    if (now := cost(plan, model, machine)) < least:
                        best, least = plan, now
    if best is None:
        raise ValueError("nothing fits")
    return best
