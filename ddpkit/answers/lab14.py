# mypy: ignore-errors
"""Answers of lab 14 (plans).

Generated from solutions/14_plans.py by `make release`; do not edit.
"""

from itertools import product

import torch

from ddpkit.simulate import MeshMachine, MeshModel, MeshPlan


def groups_of(shape: dict[str, int]) -> dict[str, list[list[int]]]:
    """Return the groups of ranks along each dimension of a mesh.

    `shape` has a name and a size for each dimension, such as {"replica": 2, "slice": 4}. Ranks are
    laid out row by row: the ranks of a group along the last dimension are neighbours. List the
    members of a group in rising order, and the groups of a dimension in any order.
    """
    mesh = torch.arange(torch.tensor(list(shape.values())).prod()).reshape(*shape.values())
    return {
        name: mesh.movedim(axis, -1).reshape(-1, shape[name]).tolist()
        for axis, name in enumerate(shape)
    }


def step_cost(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> float:
    """Return the seconds of a plan's training step: the sum of the terms of the table."""
    rows = model.batch // (plan.replicas * plan.micro)
    blocks = model.blocks // plan.stages
    weights = 2 * model.width * model.hidden // plan.slices  # weights of a block, on a rank
    travels = 4 * rows * model.width
    added = machine.all_reduce(travels, plan.slices, 1)
    forward = 2 * rows * weights / machine.flops + added
    backward = 4 * rows * weights / machine.flops + added
    turns = plan.micro + plan.stages - 1
    step = turns * blocks * (forward + backward)
    trip = 2 * (plan.stages - 1) * machine.message(travels, plan.stages, plan.slices)
    step += trip * turns / plan.stages
    reduced = machine.all_reduce(4 * weights, plan.replicas, plan.stages * plan.slices)
    if plan.shards:
        reduced /= 2
        step += blocks * reduced
    return step + max(reduced, blocks * reduced - (blocks - 1) * backward)


def plan_bytes(plan: MeshPlan, model: MeshModel) -> int:
    """Return the bytes of a first-stage rank: parameters, gradients, optimizer, activations.

    `model.parameters` is the number of parameters of the whole model.
    """
    mine = model.parameters // (plan.stages * plan.slices)
    state = 8 * mine + 8 * mine // (plan.replicas if plan.shards else 1)
    rows = model.batch // (plan.replicas * plan.micro)
    held = min(plan.stages, plan.micro)
    kept = model.width + model.hidden // plan.slices
    return state + held * (model.blocks // plan.stages) * rows * kept * 4


def divisors(n):
    """Return the numbers that divide n, in rising order."""
    return [d for d in range(1, n + 1) if n % d == 0]


def best_plan(model: MeshModel, machine: MeshMachine, ranks: int, cost, size) -> MeshPlan:
    """Return the cheapest plan that uses all ranks and fits into memory.

    `cost(plan, model, machine)` is the time of a step. A plan fits if `size(plan, model)`, the
    bytes that a rank needs, is at most `machine.memory`. Raises ValueError if no plan fits.
    """
    fitting = []
    for replicas, stages, micro in product(divisors(ranks), divisors(ranks), divisors(model.batch)):
        if ranks % (replicas * stages) or model.blocks % stages or model.batch % (replicas * micro):
            continue
        for shards in (False, True) if replicas > 1 else (False,):
            plan = MeshPlan(replicas, stages, ranks // (replicas * stages), micro, shards)
            if model.hidden % plan.slices == 0 and size(plan, model) <= machine.memory:
                fitting.append(plan)
    if not fitting:
        raise ValueError(f"no plan of {ranks} ranks fits into {machine.memory} bytes")
    return min(fitting, key=lambda plan: cost(plan, model, machine))
