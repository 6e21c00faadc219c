"""Lab 14: groups of a mesh, the cost and the memory of a plan, and the planner."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ddpkit.checks.lab14 import planners, seconds, storage
from ddpkit.checks.lab14.groups import GROUPS, in_order
from ddpkit.checks.shared.mistakes import hints_for, telling
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.guard import Answer, Careless
from ddpkit.exercises.hint import Hint
from ddpkit.simulate.mesh.plans import MeshModel, MeshPlan, mesh_groups

# groups_of


@exercise("groups_of", lab="14", points=2)
def groups_of(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the groups of ranks along each dimension of a mesh."""
    for shape in (
        {"replica": rng.randrange(2, 4), "slice": rng.randrange(4, 8)},
        {
            "replica": rng.randrange(2, 6),
            "stage": rng.randrange(2, 6),
            "slice": rng.randrange(4, 20),
        },
        {"stage": rng.randrange(2, 9), "slice": 1},
        {"slice": rng.randrange(2, 9)},
        {name: rng.randrange(2, 6) for name in ("replica", "stage", "context", "slice")},
    ):
        right = {name: sorted(found) for name, found in mesh_groups(shape).items()}
        yield Case(
            " × ".join(map(str, shape.values())),
            observe=partial(_groups, answer, shape),
            expect={"groups": right},
            read=in_order,
            hints=GROUPS,
            given={"shape": shape},
            trivial=len(shape) < 3,  # a table could hold these cases
        )


def _groups(answer: Answer, shape: Mapping[str, int]) -> Observed:
    return {"groups": answer(dict(shape))}


# step_cost


@exercise("step_cost", lab="14", points=5)
def step_cost(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the seconds of a step under a plan, within 10 % of the simulator's time."""
    for term in seconds.terms(rng):
        rights = [seconds.simulated(question) for question in term.questions]
        yield Case(
            term.title,
            observe=partial(_seconds, answer, term.questions),
            expect={seconds.RIGHT: [seconds.NEARLY] * len(rights)},
            read=partial(seconds.within, rights),
            weight=3 if term.hints is seconds.TOGETHER else 1,
            hints=term.hints,
            given={"questions": term.questions, "rights": rights},
        )


def _seconds(answer: Answer, questions: Sequence[seconds.Question]) -> Observed:
    return {"seconds": [float(answer(*question)) for question in questions]}


# plan_bytes

BYTES = hints_for(storage.MISTAKES, storage.OTHER)


@exercise("plan_bytes", lab="14", points=2)
def plan_bytes(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the bytes of the fullest rank under a plan."""
    questions = telling(rng, storage.drawn, 8, storage.bytes_of, storage.MISTAKES)
    asked = [("8 plans", questions, 3)]
    asked += [(title, [question], 1) for title, question in storage.special(rng)]
    for title, each, weight in asked:
        yield Case(
            title,
            observe=partial(_bytes, answer, each),
            expect={"answers": [storage.bytes_of(*question) for question in each]},
            weight=weight,
            hints=BYTES,
            given={"questions": each},
        )


def _bytes(answer: Answer, questions: Sequence[tuple[MeshPlan, MeshModel]]) -> Observed:
    return {"answers": [round(answer(*question)) for question in questions]}


# best_plan

# fmt: off
PLANNERS = (
    *hints_for(planners.MISTAKES, planners.OTHER)[:-1],
    Hint("no ints", lambda s: planners.NO_INTS in s.plans,
         "A plan has 2 slices, not 2.0. `/` gives a float, but the sizes of a plan must be ints."),
    Hint("other ranks", lambda s: planners.OTHER_RANKS in s.plans,
         "replicas × stages × slices must be the number of ranks. A plan must use all ranks, even "
         "if a plan of fewer ranks would be cheaper."),
    Hint("does not divide", lambda s: planners.DIVIDES_NOT in s.plans,
         "A stage needs a whole number of blocks. Stages divide the blocks, slices divide the "
         "hidden numbers, and replicas × micro divides the batch."),
    Hint("does not fit", lambda s: planners.FITS_NOT in s.plans,
         "You chose a plan that does not fit. `size(plan, model)` may be at most "
         "`machine.memory`."),
    Hint("no plan", lambda s: planners.NO_PLAN in s.plans,
         lambda s: f"plans[{s.plans.index(planners.NO_PLAN)}]: a plan fits there, but you raised "
         "ValueError, or returned a value that is not a MeshPlan."),
    Hint("other", say=planners.OTHER),
)
NONE_FITS = (
    Hint("another error", lambda s: s.raised,
         lambda s: f"No plan fits, and you raised {s.raised}. The exercise asks for ValueError."),
    Hint("must raise", say="No plan fits. Raise ValueError with a message."),
)
# fmt: on


@exercise("best_plan", lab="14", points=3)
def best_plan(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choice of the cheapest plan that fits into memory."""
    questions = telling(rng, planners.drawn, 30, planners.cheapest, planners.MISTAKES)
    yield _planned(answer, "30 models and machines", questions, PLANNERS, weight=4)
    too_large = [planners.too_large(rng)]
    yield _planned(partial(_or_none, answer), "nothing fits", too_large, NONE_FITS)


def _or_none(answer: Answer, *question: Any) -> object:
    """Return the answer's result where no plan fits; an answer without `return` gives None."""
    try:
        return answer(*question)
    except Careless:
        return None


def _planned(
    answer: Answer,
    title: str,
    questions: Sequence[planners.Question],
    hints: Sequence[Hint],
    weight: float = 1.0,
) -> Case:
    return Case(
        title,
        observe=partial(_chosen, answer, list(questions)),
        expect={"plans": ["cheapest"] * len(questions)},
        read=partial(planners.looked_at, questions),
        weight=weight,
        hints=hints,
        given={"questions": questions},
    )


def _chosen(answer: Answer, questions: Sequence[planners.Question]) -> Observed:
    return {"answers": [_facts(answer, question) for question in questions]}


def _facts(answer: Answer, question: planners.Question) -> planners.Facts | str:
    try:
        plan = answer(*question, planners.price, storage.bytes_of)
    except ValueError:
        return planners.NOTHING_FITS
    return planners.facts(plan) if isinstance(plan, MeshPlan) else type(plan).__name__
