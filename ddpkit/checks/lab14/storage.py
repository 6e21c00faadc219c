"""Bytes of a plan's fullest rank, and wrong ideas of them."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from ddpkit.checks.shared.mistakes import Mistake
from ddpkit.simulate.mesh.plans import NUMBER, MeshModel, MeshPlan

OFTEN = 2 * NUMBER  # bytes of a parameter and its gradient
ADAM = 2 * NUMBER  # bytes that the optimizer keeps of a parameter


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
    """The right number, but for what is given."""
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
            "1F1B holds no more micro-batches than there are stages from a rank on: `stages` on "
            "the first, or all, if they are fewer."),
    Mistake("one held", partial(bytes_of, live=1),
            "The first stage has several micro-batches on their way when it does its first "
            "backward."),
    Mistake("more than there are", _as_many_as_stages,
            "A rank holds no more micro-batches than a step has: there may be fewer than stages."),
    Mistake("always shards", _always_shards,
            "`plan.shards` may be False: then each replica keeps all of Adam's numbers."),
    Mistake("replicas share all", _replicas_share_all,
            "A replica has all parameters of its stage and slice. `plan.shards` alone lets "
            "replicas share something, and that is the optimizer's."),
    Mistake("over all ranks", _over_all_ranks,
            "Shards go over the replicas: other ranks have other parameters."),
    Mistake("shards ignored", partial(bytes_of, owners=1),
            "With shards the optimizer's numbers are shared out among the replicas."),
    Mistake("all is shared", partial(bytes_of, all_shared=True),
            "Only what the optimizer keeps is shared out: 8 of 16 bytes. Each replica needs all "
            "parameters, and makes all gradients."),
    Mistake("whole batch", _whole_batch,
            "Those are the activations of all micro-batches at once."),
    Mistake("other replicas' rows", _batch_of_all,
            "A replica sees its own part of the batch alone."),
    Mistake("no activations", partial(bytes_of, live=0),
            "Activations are held too, from a micro-batch's forward to its backward."),
    Mistake("parameters alone", partial(bytes_of, often=NUMBER, adam=0),
            "A parameter takes 16 bytes, not 4: itself, its gradient, and two numbers of Adam's."),
    Mistake("no optimizer", partial(bytes_of, adam=0),
            "Adam keeps two numbers of each parameter: 8 bytes more."),
    Mistake("slices not counted", partial(bytes_of, slices=1),
            "A slice has its part of each block's parameters."),
    Mistake("hidden whole", partial(bytes_of, inner=1),
            "Of the hidden numbers a slice makes its own, and holds no others."),
    Mistake("inputs in slices", _width_in_slices,
            "A slice has its own part of the hidden numbers, and all `width` inputs of a block."),
    Mistake("all blocks", _all_blocks,
            "A stage holds activations of its own blocks."),
)
# fmt: on
OTHER = (
    "For each parameter of this rank 8 bytes, and 8 of the optimizer's, which shards divide. For "
    "each micro-batch that is held, row and block: width + hidden / slices numbers of 4 bytes."
)


def drawn(rng: random.Random) -> tuple[MeshPlan, MeshModel]:
    """A plan in which every dimension counts, and a model that it divides."""
    replicas, stages, slices = (rng.choice((2, 4)) for _ in range(3))
    plan = MeshPlan(replicas, stages, slices, rng.choice((1, 2, 8)), rng.random() < 0.6)
    blocks = stages * rng.randrange(1, 4)
    return plan, MeshModel(blocks, 16 * rng.randrange(1, 8), 64 * rng.randrange(1, 8), 64 * 8)


def special(rng: random.Random) -> list[tuple[str, tuple[MeshPlan, MeshModel]]]:
    """Plans at the edges, each by its name."""
    _, model = drawn(rng)
    return [
        ("a rank alone", (MeshPlan(), model)),
        ("shards of 1 replica", (MeshPlan(1, 1, 2, 4, True), model)),
        ("fewer micro-batches than stages", (MeshPlan(2, model.blocks, 1, 1), model)),
    ]
