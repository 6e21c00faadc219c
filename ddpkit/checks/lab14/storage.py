"""The bytes of a plan's fullest rank, and wrong counts of these bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from ddpkit.checks.shared.mistakes import Mistake
from ddpkit.simulate.mesh.plans import NUMBER, MeshModel, MeshPlan

OFTEN = 2 * NUMBER  # bytes of a parameter and its gradient
ADAM = 2 * NUMBER  # bytes that the optimizer keeps for a parameter


def bytes_of(
    plan: MeshPlan,
    model: MeshModel,
    *,
    live: int | None = None,
    owners: int | None = None,
    adam: int = ADAM,
    often: int = OFTEN,
    all_shared: bool = False,
    slices: int | None = None,
    inner: int | None = None,
    blocks: int | None = None,
    rows: int | None = None,
    kept: int | None = None,
) -> int:
    """Return the bytes of the fullest rank; each keyword can add a mistake to the formula."""
    owners = (plan.replicas if owners is None else owners) if plan.shards else 1
    here = model.parameters // (plan.stages * (plan.slices if slices is None else slices))
    state = here * (often + adam) // owners if all_shared else here * often + here * adam // owners
    live = min(plan.stages, plan.micro) if live is None else live
    rows = model.batch // (plan.replicas * plan.micro) if rows is None else rows
    if kept is None:
        kept = model.width + model.hidden // (plan.slices if inner is None else inner)
    return state + live * (blocks or model.blocks // plan.stages) * rows * kept * NUMBER


def _all_live(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, live=plan.micro)


def _as_many_as_stages(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, live=plan.stages)


def _always_shards(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(replace(plan, shards=True), model)


def _replicas_share_all(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, slices=plan.slices * plan.replicas)


def _width_in_slices(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, kept=(model.width + model.hidden) // plan.slices)


def _over_all_ranks(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, owners=plan.ranks)


def _whole_batch(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, rows=model.batch // plan.replicas)


def _batch_of_all(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, rows=model.batch // plan.micro)


def _all_blocks(plan: MeshPlan, model: MeshModel) -> int:
    return bytes_of(plan, model, blocks=model.blocks)


# fmt: off
MISTAKES = (
    Mistake("all held", _all_live,
            "1F1B holds at most as many micro-batches as there are stages from a rank on: on the "
            "first stage `stages` micro-batches, or all if there are fewer."),
    Mistake("one held", partial(bytes_of, live=1),
            "The first stage has several micro-batches under way when it runs its first "
            "backward."),
    Mistake("more than there are", _as_many_as_stages,
            "A rank holds at most as many micro-batches as a step has, which may be fewer than "
            "stages."),
    Mistake("always shards", _always_shards,
            "`plan.shards` may be False. Then each replica keeps all of Adam's numbers."),
    Mistake("replicas share all", _replicas_share_all,
            "A replica has all parameters of its stage and slice. Only with `plan.shards` do "
            "replicas share a part, the optimizer's numbers."),
    Mistake("over all ranks", _over_all_ranks,
            "Shards are shared out among the replicas. All further ranks have different "
            "parameters."),
    Mistake("shards ignored", partial(bytes_of, owners=1),
            "With shards, the replicas share out the optimizer's numbers."),
    Mistake("all is shared", partial(bytes_of, all_shared=True),
            "Only the optimizer's numbers are shared out: 8 of 16 bytes. Each replica needs all "
            "parameters, and makes all gradients."),
    Mistake("whole batch", _whole_batch,
            "Your result has the activations of all micro-batches at once."),
    Mistake("other replicas' rows", _batch_of_all,
            "A replica sees only its own part of the batch."),
    Mistake("no activations", partial(bytes_of, live=0),
            "A rank also holds activations, from a micro-batch's forward to its backward."),
    Mistake("parameters alone", partial(bytes_of, often=NUMBER, adam=0),
            "A parameter takes 16 bytes, not 4: itself, its gradient, and Adam's two numbers."),
    Mistake("no optimizer", partial(bytes_of, adam=0),
            "Adam keeps two numbers for each parameter: 8 bytes more."),
    Mistake("slices not counted", partial(bytes_of, slices=1),
            "A slice has only its part of each block's parameters."),
    Mistake("hidden whole", partial(bytes_of, inner=1),
            "A slice computes and holds only its own part of the hidden numbers."),
    Mistake("inputs in slices", _width_in_slices,
            "A slice has its own part of the hidden numbers, but all `width` inputs of a block."),
    Mistake("all blocks", _all_blocks,
            "A stage holds activations only of its own blocks."),
)
# fmt: on
OTHER = (
    "Count 8 bytes for each parameter of this rank, and 8 bytes for its optimizer, which shards "
    "divide. For each held micro-batch, row and block, add width + hidden / slices numbers of 4 "
    "bytes."
)


def drawn(rng: random.Random) -> tuple[MeshPlan, MeshModel]:
    """Draw a plan with more than 1 in every dimension, and a model that the plan divides evenly."""
    replicas, stages, slices = (rng.choice((2, 4)) for _ in range(3))
    plan = MeshPlan(replicas, stages, slices, rng.choice((1, 2, 8)), rng.random() < 0.6)
    blocks = stages * rng.randrange(1, 4)
    return plan, MeshModel(blocks, 16 * rng.randrange(1, 8), 64 * rng.randrange(1, 8), 64 * 8)


def special(rng: random.Random) -> list[tuple[str, tuple[MeshPlan, MeshModel]]]:
    """Draw plans for edge cases, each with its title."""
    _, model = drawn(rng)
    return [
        ("a rank alone", (MeshPlan(), model)),
        ("shards of 1 replica", (MeshPlan(1, 1, 2, 4, True), model)),
        ("fewer micro-batches than stages", (MeshPlan(2, model.blocks, 1, 1), model)),
    ]
