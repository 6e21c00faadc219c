"""The cheapest plan that fits, and planners that miss it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from ddpkit.checks.lab14.storage import bytes_of
from ddpkit.checks.shared.mistakes import Mistake
from ddpkit.exercises.exercise import Observed
from ddpkit.simulate.mesh.plans import NUMBER, MeshMachine, MeshModel, MeshPlan

Facts = tuple[int, int, int, int, bool]  # the sizes of a plan, as plain data
Question = tuple[MeshModel, MeshMachine, int]
NOTHING_FITS = "ValueError"
ENOUGH = 1.001  # a plan counts as cheapest up to this multiple of the best plan's cost


def price(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> float:
    """Return the seconds of a step under the plan, by a closed formula."""
    rows = model.batch / (plan.replicas * plan.micro)
    part = NUMBER * 2 * model.width * model.hidden / plan.slices
    passed = NUMBER * rows * model.width
    times = 2 * (rows * part / NUMBER) / machine.flops
    sums = machine.all_reduce(passed, plan.slices, 1)  # type: ignore[arg-type]  # not whole bytes
    turns, mine = plan.micro + plan.stages - 1, model.blocks / plan.stages
    there = machine.message(passed, plan.stages, plan.slices)  # type: ignore[arg-type]
    reduced = machine.all_reduce(part, plan.replicas, plan.stages * plan.slices)  # type: ignore[arg-type]
    late, before = (0.5 * reduced * mine, 0.5 * reduced) if plan.shards else (0.0, reduced)
    open_ = before + (mine - 1) * max(0.0, before - 2 * times - sums)
    bubbles = turns * mine * (3 * times + 2 * sums)
    return bubbles + 2 * (plan.stages - 1) * there * turns / plan.stages + open_ + late


def plans_of(
    model: MeshModel, ranks: int, micros: Callable[[int], Sequence[int]] | None = None
) -> Iterator[MeshPlan]:
    """Yield all plans for `ranks` ranks that divide the model evenly, the most replicas first."""
    sizes = [size for size in range(ranks, 0, -1) if ranks % size == 0]
    for replicas, stages in product(sizes, sizes):
        if ranks % (replicas * stages) or model.batch % replicas:
            continue
        share = model.batch // replicas
        divisors = [micro for micro in range(1, share + 1) if share % micro == 0]
        for micro in micros(share) if micros else divisors:
            for shards in (False, True)[: 1 + (replicas > 1)]:
                plan = MeshPlan(replicas, stages, ranks // (replicas * stages), micro, shards)
                if not (model.blocks % plan.stages or model.hidden % plan.slices):
                    yield plan


def facts(plan: MeshPlan) -> Facts:
    return plan.replicas, plan.stages, plan.slices, plan.micro, plan.shards


def fitting(plans: Iterator[MeshPlan], model: MeshModel, machine: MeshMachine) -> list[MeshPlan]:
    return [plan for plan in plans if bytes_of(plan, model) <= machine.memory]


def _chosen(
    plans: Sequence[MeshPlan], by: Callable[[MeshPlan], float] | None = None
) -> Facts | str:
    if not plans:
        return NOTHING_FITS
    return facts(min(plans, key=by) if by else plans[0])


def cheapest(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    """Return the sizes of the cheapest plan that fits, or NOTHING_FITS."""
    fit = fitting(plans_of(model, ranks), model, machine)
    return _chosen(fit, lambda plan: price(plan, model, machine))


def _no_memory(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    return cheapest(model, replace(machine, memory=1 << 60), ranks)


def _dearest(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    fit = fitting(plans_of(model, ranks), model, machine)
    return _chosen(fit, lambda plan: -price(plan, model, machine))


def _one_micro(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    fit = fitting(plans_of(model, ranks, lambda share: [1]), model, machine)
    return _chosen(fit, lambda plan: price(plan, model, machine))


def _first(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    return _chosen(fitting(plans_of(model, ranks), model, machine))


def _smallest(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    fit = fitting(plans_of(model, ranks), model, machine)
    return _chosen(fit, lambda plan: bytes_of(plan, model))


def _one_kind(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    """Return the cheapest plan that puts all ranks into one dimension."""
    alone = (p for p in plans_of(model, ranks) if max(p.shape.values()) == ranks)
    return _chosen(fitting(alone, model, machine), lambda plan: price(plan, model, machine))


def _unsharded(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    without = (plan for plan in plans_of(model, ranks) if not plan.shards)
    return _chosen(fitting(without, model, machine), lambda plan: price(plan, model, machine))


def _sharded(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    """Return the cheapest plan in which replicas always share the optimizer's state."""
    shared = (plan for plan in plans_of(model, ranks) if plan.shards or plan.replicas == 1)
    return _chosen(fitting(shared, model, machine), lambda plan: price(plan, model, machine))


def _not_to_the_brim(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    return cheapest(model, replace(machine, memory=machine.memory - 1), ranks)


def _powers_of_two(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    doubled = [1 << k for k in range(8)]
    plans = plans_of(model, ranks, lambda share: [m for m in doubled if share % m == 0])
    return _chosen(fitting(plans, model, machine), lambda plan: price(plan, model, machine))


def _uneven_slices(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    even = replace(model, hidden=12 * model.hidden)  # every number of slices divides this
    fit = fitting(plans_of(even, ranks), model, machine)
    return _chosen(fit, lambda plan: price(plan, model, machine))


def _rows_left_over(model: MeshModel, machine: MeshMachine, ranks: int) -> Facts | str:
    """Return the cheapest plan if `micro` need not divide a replica's part of the batch."""
    micros = [micro for micro in range(1, model.batch + 1) if model.batch % micro == 0]
    fit = fitting(plans_of(model, ranks, lambda _: micros), model, machine)
    return _chosen(fit, lambda plan: price(plan, model, machine))


# fmt: off
MISTAKES = (
    Mistake("memory ignored", _no_memory,
            "The cheapest plan of all does not fit. Compare `size` with `machine.memory` first."),
    Mistake("the dearest", _dearest, "You chose the most expensive plan that fits."),
    Mistake("one micro-batch", _one_micro,
            "Plans with more micro-batches are cheaper here. Try all numbers that divide a "
            "replica's rows."),
    Mistake("first that fits", _first,
            "You chose the first plan that fits, not the cheapest."),
    Mistake("fewest bytes", _smallest,
            "You chose the plan with the fewest bytes. Among the plans that fit, choose by time."),
    Mistake("one kind alone", _one_kind,
            "All ranks are in one dimension, but a mixture of two or three dimensions is cheaper "
            "here."),
    Mistake("no shards", _unsharded,
            "A plan with shards may fit although the same plan without shards does not."),
    Mistake("always shards", _sharded,
            "Plans of replicas without shards are cheaper if they fit. Try both."),
    Mistake("not to the brim", _not_to_the_brim,
            "A plan that needs exactly all of `machine.memory` fits."),
    Mistake("powers of two", _powers_of_two,
            "The number of micro-batches need not be 1, 2, 4, 8. Try all numbers that divide a "
            "replica's rows."),
    Mistake("rows left over", _rows_left_over,
            "Each replica cuts its own rows into micro-batches, so replicas × micro must divide "
            "the batch, not only micro."),
    Mistake("uneven slices", _uneven_slices,
            "Slices share a block's hidden numbers evenly, so slices must divide `model.hidden`."),
)
# fmt: on
OTHER = "A cheaper plan fits and divides the model. Try all plans."
FITS_NOT, DIVIDES_NOT, OTHER_RANKS, NO_PLAN, NO_INTS = (
    "does not fit",
    "does not divide the model",
    "has other ranks",
    "is no plan",
    "has sizes that are no ints",
)


def looked_at(questions: Sequence[Question], observed: Observed) -> Observed:
    """Replace each answer by "cheapest" or its fault; if there is a fault, add all answers."""
    found = observed["answers"]
    worth = [_worth(*question, got) for question, got in zip(questions, found, strict=True)]
    return {"plans": worth} if set(worth) == {"cheapest"} else {"plans": worth, "answers": found}


def _worth(model: MeshModel, machine: MeshMachine, ranks: int, got: Facts | str) -> str:
    if not isinstance(got, str) and not all(hasattr(size, "__index__") for size in got):
        return NO_INTS
    best = cheapest(model, machine, ranks)
    if isinstance(got, str) or isinstance(best, str):
        return "cheapest" if got == best else NO_PLAN if isinstance(got, str) else FITS_NOT
    try:
        plan = MeshPlan(*got)
    except (TypeError, ValueError):
        return NO_PLAN
    if plan.ranks != ranks:
        return OTHER_RANKS
    try:
        model.check(plan)
    except ValueError:
        return DIVIDES_NOT
    if bytes_of(plan, model) > machine.memory:
        return FITS_NOT
    least = price(MeshPlan(*best), model, machine)
    return "cheapest" if price(plan, model, machine) <= ENOUGH * least else "dearer"


def drawn(rng: random.Random) -> Question:
    """Draw a model and hosts; memory rules out plans about as often as time does."""
    ranks = rng.choice((4, 6))
    model = MeshModel(
        rng.choice((4, 6, 8)), 32 * rng.randrange(1, 5),
        96 * rng.randrange(1, 6) + (rng.choice((0, 2)) if ranks == 4 else 0),
        rng.choice((16, 20, 24, 30, 32)),
    )  # fmt: skip
    machine = MeshMachine(
        rng.choice((2e9, 10e9, 40e9)), 0, rng.choice((2, 4)), "10 Gbit/s, 20 us",
        rng.choice(("1 Gbit/s, 200 us", "10 Gbit/s, 50 us")),
    )  # fmt: skip
    sizes = sorted(bytes_of(plan, model) for plan in plans_of(model, ranks))
    return model, replace(machine, memory=sizes[rng.randrange(len(sizes) // 4, len(sizes))]), ranks


def too_large(rng: random.Random) -> Question:
    """Draw a model for which no plan fits."""
    model, machine, ranks = drawn(rng)
    return model, replace(machine, memory=1000), ranks
