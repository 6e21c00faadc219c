"""The plan that lab 14's planner chooses runs, and its neighbours too; wrong costs are detected."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ddpkit import Cluster, answers
from ddpkit.mesh import train_on_mesh
from ddpkit.simulate import MeshMachine, MeshModel, MeshPlan, plan_time

MODEL = MeshModel(blocks=4, width=128, hidden=512, batch=1024)
MACHINE = MeshMachine(50e9, 10_000_000, 2, "10 Gbit/s, 20 us", "1 Gbit/s, 200 us")
RANKS, FORMULAS_FIRST, NEIGHBOURS, FASTER = 4, 20, 5, 1.02

Cost = Callable[[MeshPlan, MeshModel, MeshMachine], float]


def planned(cost: Cost) -> list[MeshPlan]:
    """Return the planner's choice by a cost, and then its neighbours, the next best plans."""
    costs: dict[MeshPlan, float] = {}

    def noted(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> float:
        costs[plan] = cost(plan, model, machine)
        return costs[plan]

    best = answers.get("best_plan")(MODEL, MACHINE, RANKS, noted, answers.get("plan_bytes"))
    ranking = sorted(costs, key=costs.__getitem__)
    assert ranking[0] == best
    return ranking[: 1 + NEIGHBOURS]


def careful(machine: MeshMachine = MACHINE) -> Cost:
    """Return lab 14's cost: the simulator prices the formula's first twenty.

    Others are far behind.
    """
    formula: Cost = answers.get("step_cost")
    costs: dict[MeshPlan, float] = {}

    def noted(plan: MeshPlan, model: MeshModel, _: MeshMachine) -> float:
        costs[plan] = formula(plan, model, machine)
        return costs[plan]

    planned(noted)
    first = sorted(costs, key=costs.__getitem__)[:FORMULAS_FIRST]

    def cost(plan: MeshPlan, model: MeshModel, _: MeshMachine) -> float:
        if plan not in first:
            return 10 + costs[plan]
        return plan_time(plan, model, machine).end_ns / 1e9

    return cost


def step_of_each(plans: Sequence[MeshPlan]) -> None:
    for plan in plans:
        train_on_mesh(plan, MODEL)


def wrong_costs() -> dict[str, Cost]:
    return {
        "the formula alone": answers.get("step_cost"),
        "hosts as near as ranks of one": careful(replace(MACHINE, between=MACHINE.inside)),
        "compute is free": careful(replace(MACHINE, flops=1e18)),
    }


@pytest.mark.processes
def test_no_neighbour_of_the_planners_choice_is_faster_and_a_wrong_cost_is_found_out():
    right = planned(careful())
    wrong = {name: planned(cost)[0] for name, cost in wrong_costs().items()}
    plans = list(dict.fromkeys([*right, *wrong.values()]))
    cluster = Cluster(RANKS, machine=f"{MACHINE.flops:g} FLOP/s", link=MACHINE.link)
    windows = cluster.run(step_of_each, plans).trace.step_windows.values()
    spent = {
        plan: max(own[place][1] - own[place][0] for own in windows)
        for place, plan in enumerate(plans)
    }
    assert spent == {plan: plan_time(plan, MODEL, MACHINE).end_ns for plan in plans}

    def is_best(chosen: MeshPlan) -> bool:
        return all(spent[chosen] <= FASTER * spent[each] for each in right)

    assert len(right) == 1 + NEIGHBOURS
    assert is_best(right[0])
    found_out = [name for name, chosen in wrong.items() if not is_best(chosen)]
    assert found_out == list(wrong), {name: str(plan) for name, plan in wrong.items()}
