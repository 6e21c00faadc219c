"""Lab 08: the cases of Synchronous and Asynchronous, and the hints about them.

The right results, and the results of each mistake, are computed in the check's process, outside the
sandbox.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from ddpkit.checks.lab08.rules import Story, end_of, events, play
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


# Synchronous

ROUNDS = (  # about; workers; story of workers 0, 1, 2
    ("1 worker, 2 rounds", 1, "?0 v0 p0 ?0 v0 p0 ?0"),
    ("3 workers, 2 rounds", 3, "?0 v0 v1 v2 p0 ?0 ?1 p1 ?1 ?2 p2 ?0 ?1 ?2 p2 ?2 ?0 p0 v1 p1 ?2"),
    ("one pushes twice", 3, "p0 p0 p1 ?1 p2 ?0 ?1"),
    ("one is done in the middle of a round", 3, "p0 p1 ?0 d2 ?0 ?1 p1 ?1 p0 ?0"),
    ("one pushes, and is done before the round closes", 3, "p0 d0 p1 ?1 p2 ?1 ?2 p2 ?2 p1 ?1"),
    ("all are done", 2, "p0 p1 d0 d1"),
)


def synchronous(
    story: Story, gradients: Sequence[float], workers: Sequence[int], by: int = 0
) -> Observed:
    """Return the right permissions ("may pull") and parameters of a synchronous rule in a story.

    With `by`, each update is the sum of the gradients divided by `by`, which is a mistake.
    """
    active, waiting = set(workers), dict[int, float]()
    said, pulled, parameters, updates, flat = [], [], [], 0, 0.0
    pushed = iter(gradients)
    for what, worker in events(story):
        if what == "?":
            said.append("no" if worker in waiting else "yes")
        elif what == "v":
            pulled.append(flat)
        elif what == "p":
            waiting[worker] = next(pushed)
        else:
            active.discard(worker)
        if waiting and active <= waiting.keys():
            flat += sum(waiting.values()) / (by or len(waiting))
            updates += 1
            waiting = {}
        if what in "pd":
            parameters.append(flat)
    return {
        "may pull": " ".join(said),
        "parameters": Close(parameters) if parameters else [],
        "pulled": pulled,
        "updates": updates,
    }


def named(story: Story, workers: Sequence[int]) -> Story:
    """Return the story with the numbers in `workers` in the place of the numbers 0, 1, 2."""
    return " ".join(f"{what}{workers[worker]}" for what, worker in events(story))


def pushes_of(story: Story) -> list[int]:
    """Return the worker of each push, in the order of the story."""
    return [worker for what, worker in events(story) if what == "p"]


def one_number(values: Sequence[float]) -> list[Tensor]:
    """Return a list of gradients with one element each."""
    import torch

    return [torch.tensor([value]) for value in values]


def synchronous_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield stories of synchronous rounds, and a case with all orders of arrival."""
    import torch

    for about, n, plot in ROUNDS:
        workers = rng.sample(range(1, 9), n)
        story = named(plot, workers)
        values = [6.0 * rng.randrange(1, 30) for _ in pushes_of(story)]
        if "twice" in about:
            values[1] = values[0]
        if about == "3 workers, 2 rounds":
            values[1] = 0.0  # a gradient of zeros counts too
        given = {"n": n, "values": values, "story": story, "about": about, "workers": workers}
        yield Case(
            about,
            partial(play, answer, story, one_number(values), workers),
            synchronous(story, values, workers),
            hints=SYNCHRONOUS,
            given=given,
        )
    workers = rng.sample(range(1, 9), 3)
    generator = torch.Generator().manual_seed(rng.randrange(1000))
    by_worker = {worker: torch.rand(64, generator=generator) for worker in workers}
    stories = [" ".join(f"p{worker}" for worker in order) for order in permutations(workers)]
    yield Case(
        "3 workers, in all 6 orders of arrival",
        partial(end_of, answer, stories, by_worker, workers),
        {"alike": True, "mean": Close(sum(by_worker.values()) / 3)},
        read=_alike,
        hints=ORDERS,
        given={"unsorted": False},
    )
    low, *others = sorted(rng.sample(range(1, 9), 3))
    workers = [*rng.sample(others, 2), low]
    small = torch.rand(8, generator=generator) + 1
    large = torch.full((8,), 2.0**30)  # beside such a number, float32 loses a small number
    by_worker = dict(zip(workers, (large, -large, small), strict=True))
    yield Case(
        f"workers {workers}, added in this order",
        partial(end_of, answer, [named("p2 p1 p0", workers)], by_worker, workers),
        {"alike": True, "mean": Close(small / 3)},
        read=_alike,
        hints=ORDERS,
        given={"unsorted": True},
    )


def _alike(observed: Observed) -> Observed:
    first, *others = observed["parameters"]
    return {"alike": all(same(each, first) for each in others), "mean": first}


def is_case(s: Seen, word: str) -> bool:
    """True if the title of the case contains `word`."""
    return word in s.about


def scaled(s: Seen, factor: float) -> bool:
    """True if the answer's parameters are the right parameters times `factor`."""
    wanted = s.expect["parameters"].value
    return s.wrong("parameters") and same(s.parameters, Close([each * factor for each in wanted]))


def _by_all(s: Seen) -> bool:
    """True if the answer divides the sum of each round by the number of workers at the start."""
    wrong = synchronous(s.story, s.values, s.workers, by=s.n)["parameters"]
    return s.wrong("parameters") and same(s.parameters, wrong)


def _unmoved(s: Seen) -> bool:
    """True if the answer has called `update`, but the parameters are still zeros."""
    import torch

    still = not torch.tensor(s.parameters, dtype=torch.float64).any()
    return s.wrong("parameters") and s.updates > 0 and bool(still)


UNMOVED = Hint("a copy", _unmoved,
               "`update` was called, but `flat` is still all zeros. Update the tensor that the "
               "rule was made with, not a copy.")  # fmt: skip


# fmt: off
SYNCHRONOUS = (
    Hint("gone", lambda s: s.raised in ("KeyError", "ValueError") and is_case(s, "done"),
         "A worker may push, and be done before the round closes. Its gradient still counts, "
         "although no one waits for the worker any more."),
    Hint("divides by nothing", lambda s: s.raised == "ZeroDivisionError",
         "A round without a push is not a round, so there is no update."),
    Hint("never updates", lambda s: not is_case(s, "done") and s.updates == 0 < s.expect["updates"],
         "`update` was never called. It changes `flat` in place, and needs the mean."),
    Hint("every push", lambda s: not is_case(s, "done")
         and s.updates >= len(s.values) > s.expect["updates"],
         "Your rule updates at every push. Keep the gradients until all workers that are not done "
         "have pushed."),
    Hint("counts pushes", lambda s: is_case(s, "twice") and s.parameters[2] != 0,
         "The second push of one worker does not replace the push of a different worker. Count "
         "workers, not pushes."),
    Hint("old gradients", lambda s: not is_case(s, "done")
         and (s.updates == len(s.values) - s.n + 1 > s.expect["updates"]
              or (s.n == 1 and s["may pull"] == "yes no no")),
         "The next round begins with the gradients of the previous round. Drop the gradients after "
         "the update."),
    Hint("done ignored", lambda s: is_case(s, "done") and s.updates < s.expect["updates"],
         "A worker that is done will not push again. The remaining workers no longer wait for this "
         "worker, and its `done` may close the round."),
    Hint("too many updates", lambda s: s.updates > s.expect["updates"],
         lambda s: f"`update` was called {s.updates} times, but only {s.expect['updates']} rounds "
         "were complete. Call it once for each complete round."),
    UNMOVED,
    Hint("the sum", lambda s: s.n > 1 and scaled(s, s.n),
         "The update is the sum of the gradients. Update with their mean."),
    Hint("those at the start", lambda s: is_case(s, "done") and _by_all(s),
         "The mean is over the workers that have pushed in this round, not over all workers of the "
         "start."),
    Hint("another round", lambda s: is_case(s, "done") and s.wrong("parameters"),
         "A round is complete when each worker has pushed or is done. The mean is over all "
         "gradients of the round, also over the gradient of a worker that is done."),
    Hint("old ones in the mean", lambda s: s.wrong("parameters"),
         "Update with the mean of this round's gradients: one gradient of each worker, counted "
         "once."),
    Hint("never waits", lambda s: s.wrong("may pull")
         and "no" not in s["may pull"],
         "A worker that has pushed in this round must wait: may_pull returns False until the round "
         "closes. Otherwise the worker gets ahead of the rest."),
    Hint("nobody goes on", lambda s: s.wrong("may pull"),
         "A worker waits only while its own gradient waits for the round: not before its push, and "
         "not after the update."),
)
ORDERS = (
    Hint("another order", lambda s: s.unsorted and s.wrong("mean"),
         "The sum has a different order than `workers`, which need not be sorted."),
    Hint("order of arrival", lambda s: not s.alike,
         "The last bit depends on the order of arrival. Add in the order of `workers`, so that "
         "each run has the same numbers."),
    Hint("no mean", lambda s: s.wrong("mean"),
         "Three workers have pushed. Update once, with the mean of their gradients."),
)
# fmt: on

# Asynchronous

ONE, THREE = (1.0,), (1.0, 3.0, -2.0)
AGES = (
    ("1 worker", 1, "v0 v0 p0 v0 p0 p0"),
    ("2 pull together, and push one after the other", 2, "v0 v1 p0 p1 v0 p0 v1 p1"),
    ("one pulls twice", 2, "v0 v1 p1 v0 p0 p1"),
    ("one pushes twice", 2, "v0 p0 p0 v1 p1 p0"),
    ("3 workers", 3, "v0 v1 v2 p0 v0 p0 v0 p0 p1 v1 p2 p1 v2 v0 p0 p2"),
)


def asynchronous(
    story: Story, gradients: Sequence[float], workers: Sequence[int], times: Sequence[float] = ONE
) -> Observed:
    """Return the right permissions ("may pull") and parameters of an asynchronous rule in a story.

    The gradient of a push has an element for each factor in `times`: the factor times the push's
    value. Sums of whole numbers are exact.
    """
    seen, flat, pushed = dict.fromkeys(workers, 0), 0.0, iter(gradients)
    ages: list[tuple[int, int]] = []
    pulled, parameters = [], []
    for what, worker in events(story):
        if what == "v":
            seen[worker] = len(ages)
            pulled.append(_several(flat, times))
        elif what == "p":
            ages.append((worker, len(ages) - seen[worker]))
            flat += next(pushed)
        if what in "pd":
            parameters.append(_several(flat, times))
    return {
        "may pull": " ".join("yes" for what, _ in events(story) if what == "?"),
        "parameters": parameters,
        "pulled": pulled,
        "updates": len(ages),
        "staleness": ages,
    }


def _several(number: float, times: Sequence[float]) -> float | list[float]:
    return number if times == ONE else [number * each for each in times]


def asynchronous_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield stories of pulls and pushes; the last story is drawn at random.

    The values need more digits than float16 has.
    """
    import torch

    drawn = []
    for _ in range(12):
        worker = rng.randrange(4)
        drawn += [f"v{rng.randrange(4)}", f"p{worker}"]
    for about, n, plot in (*AGES, ("4 workers, drawn", 4, " ".join(drawn))):
        workers = rng.sample(range(1, 9), n)
        story = named(plot, workers)
        values = [float(rng.randrange(2049, 9000, 2)) for _ in pushes_of(story)]
        gradients = [torch.tensor(_several(value, THREE)) for value in values]
        yield Case(
            about,
            partial(play, answer, story, gradients, workers),
            asynchronous(story, values, workers, THREE),
            hints=ASYNCHRONOUS,
            given={"n": n, "story": story, "workers": workers},
        )


def ages_by(s: Seen, rule: str) -> list[tuple[int, int]]:
    """Return (worker, age) for each push, where the wrong rule `rule` computes the ages."""
    ages: list[tuple[int, int]] = []
    seen, version = dict.fromkeys(s.workers, 0), 0
    for what, worker in events(s.story):
        one = worker if rule != "one for all" else s.workers[0]
        if what == "v":
            seen[one] = version
            version += rule == "counts pulls"
        if what == "p":
            ages.append((worker, version - seen[one] + (rule == "too late")))
            version += rule != "counts pulls"
    return ages


def _aged(s: Seen, rule: str) -> bool:
    return s.wrong("staleness") and s.staleness == ages_by(s, rule)


def _none_is_old(s: Seen) -> bool:
    return s.wrong("staleness") and [tuple(each) for each in s.staleness if each] == [
        (worker, 0) for worker, _ in s.expect["staleness"]
    ]


OTHER_AGES = ("too late", "counts pulls", "one for all")
# fmt: off
ASYNCHRONOUS = (
    Hint("not applied", lambda s: s.updates < s.expect["updates"],
         "Apply each push at once: self.update(self.flat, gradient)."),
    UNMOVED,
    Hint("gradients averaged", lambda s: not s.wrong("updates") and s.wrong("parameters"),
         "Update with the pushed gradient itself, without a mean and without changes."),
    *(Hint(rule, partial(_aged, rule=rule), text)
      for rule, text in zip(OTHER_AGES, (
        "The update of this push itself does not count. Take the age before `version` is raised.",
        "The age counts updates, not pulls.",
        "Each worker pulls at its own time. Note the version for each worker.",
      ), strict=True)),
    Hint("all 0", _none_is_old,
         lambda s: f"All your ages are 0, but the right ages are "
         f"{[age for _, age in s.expect['staleness']]}. Every update raises `version`, and the age "
         "counts all updates since the worker's last pull."),
    Hint("no ages", lambda s: len(s.staleness) < s.expect["updates"],
         "At each push, add (worker, age) to self.staleness."),
    Hint("no pairs", lambda s: any(not isinstance(each, tuple | list) or len(each) != 2
                                   or each[0] not in s.workers for each in s.staleness),
         "`staleness` must hold pairs: (worker, age)."),
    Hint("other ages", lambda s: s.wrong("staleness"),
         "An age is the number of updates between this worker's last pull and this push. The "
         "worker's own earlier updates count too."),
    Hint("pulled", lambda s: s.wrong("pulled"), "pull must return the current parameters."),
)
# fmt: on
