"""Lab 08: the cases of Bounded, and the hints about them.

The right rule and the wrong rules run in the check's process, outside the sandbox.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ddpkit.checks.lab08.of_rules import asynchronous, named, one_number, pushes_of
from ddpkit.checks.lab08.rules import Story, events, play
from ddpkit.exercises.exercise import Case
from ddpkit.exercises.hint import Hint, Seen

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

LEADS = (  # about; bound; workers; story
    ("bound 0, all in step", 0, 3, "?0 ?1 ?2 v0 v1 v2 p0 ?0 ?1 p1 ?1 p2 ?0 ?1 ?2 v1 p1 ?0 ?1"),
    (
        *("bound 3", 3, 3),
        "p0 p0 p0 ?0 ?1 p0 ?0 ?1 p0 ?0 p0 p0 ?0 p1 p2 ?0 p1 p1 p2 p2 p1 p2 ?0 p1 ?0 p2 ?0",
    ),
    ("bound 1", 1, 3, "p0 ?0 p0 ?0 ?1 p1 ?0 ?1 p2 ?0 ?1 ?2 p0 ?0 p2 ?2 p1 ?0 p0 p0 ?0"),
    ("no bound", math.inf, 2, "p0 p0 p0 p0 p0 ?0 ?1"),
    ("pulls do not count", 1, 2, "v0 v0 v0 ?0 p0 v1 ?0 ?1"),
    ("the slowest is done", 1, 3, "p0 p0 p1 ?0 d2 ?0 ?1 p0 ?0 d1 ?0"),
    ("one is left", 0, 2, "p0 ?0 d1 ?0 p0 ?0 p0 ?0"),
)


def leads(story: Story, workers: Sequence[int], may: Callable[..., bool]) -> str:
    """Return "yes" or "no" for each "?" of a story, by the rule `may(worker, clocks, state)`.

    `clocks` maps each worker that is not done to its number of pushes. `state` has the numbers of
    pushes of all workers ("all"), the numbers of pulls ("pulls"), and the number of pushes since
    the worker's last pull ("age").
    """
    clocks, done = dict.fromkeys(workers, 0), set[int]()
    versions, pulls, total = dict.fromkeys(workers, 0), dict.fromkeys(workers, 0), 0
    said = []
    for what, worker in events(story):
        if what == "?":
            active = {each: clock for each, clock in clocks.items() if each not in done}
            state = {
                "all": clocks, "pulls": pulls, "age": total - versions[worker]
            }  # fmt: skip
            said.append("yes" if may(worker, active, state) else "no")
        elif what == "v":
            pulls[worker] += 1
            versions[worker] = total
        elif what == "p":
            clocks[worker] += 1
            total += 1
        else:
            done.add(worker)
    return " ".join(said)


def bounded_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield stories for several bounds; the last two stories are drawn at random."""
    drawn = [(f"bound {bound}, drawn", bound, 4, _drawn(rng, bound, 4)) for bound in (1, 2)]
    for about, bound, n, plot in (*LEADS, *drawn):
        workers = rng.sample(range(1, 9), n)
        story = named(plot, workers)
        values = [float(rng.randrange(1, 90)) for _ in pushes_of(story)]
        expect = dict(asynchronous(story, values, workers))
        del expect["staleness"]
        yield Case(
            about,
            partial(play, answer, story, one_number(values), workers, bound),
            {**expect, "may pull": leads(story, workers, right(bound))},
            hints=BOUNDED,
            given={"bound": bound, "story": story, "workers": workers},
        )


def _drawn(rng: random.Random, bound: float, n: int) -> Story:
    """Draw a story: workers pull when the rule allows it, and push at any time.

    One worker is done early.
    """
    clocks, story, busy = dict.fromkeys(range(n), 0), list[str](), set[int]()
    for number in range(60):
        worker = rng.choice(list(clocks))
        if number == 40:
            clocks.pop(n - 1)
            story.append(f"d{n - 1}")
            continue
        if worker in busy:
            story.append(f"p{worker}")
            busy.remove(worker)
            clocks[worker] += 1
        else:
            story.append(f"?{worker}")
            if clocks[worker] - min(clocks.values()) <= bound:
                story.append(f"v{worker}")
                busy.add(worker)
    return " ".join(story)


def right(bound: float) -> Callable[..., bool]:
    """Return the right rule of Bounded."""
    return lambda worker, clocks, _: clocks[worker] - min(clocks.values()) <= bound


def other_rules(bound: float) -> Mapping[str, Callable[..., bool]]:
    """Return wrong rules of Bounded; the keys are the names of their hints."""
    block = max(bound, 1) if bound < math.inf else 10**9
    return {
        "less than": lambda w, clocks, _: clocks[w] - min(clocks.values()) < bound,
        "never waits": lambda w, clocks, _: True,
        "the slow wait": lambda w, clocks, _: max(clocks.values()) - clocks[w] <= bound,
        "the mean": lambda w, clocks, _: clocks[w] - sum(clocks.values()) / len(clocks) <= bound,
        "done ones count": lambda w, clocks, state: clocks[w] - min(state["all"].values()) <= bound,
        "counts pulls": lambda w, clocks, state: (
            state["pulls"][w] - min(state["pulls"][each] for each in clocks) <= bound
        ),
        "bound on age": lambda w, clocks, state: state["age"] <= bound,
        "a barrier": lambda w, clocks, _: clocks[w] // block <= min(clocks.values()) // block,
    }


def says(s: Seen, rule: str) -> bool:
    """True if the answer is wrong, and says the same as the wrong rule `rule`."""
    wrong = leads(s.story, s.workers, other_rules(s.bound)[rule])
    if rule == "less than" and s.bound:
        return False  # an answer with this rule has already failed with bound 0
    if rule == "a barrier" and s.bound < 2:
        return False  # here, a barrier gives the same answers as a bound that is 1 smaller
    return s.wrong("may pull") and s["may pull"] == wrong


# fmt: off
BOUNDED = (
    Hint("no infinity", lambda s: s.error and s.bound == math.inf,
         "The bound may be math.inf, which range() does not accept. Compare with the bound."),
    Hint("gone worker", lambda s: s.raised in ("KeyError", "ValueError") and "d" in s.story,
         "A worker that is done has left. Read only the clocks of the remaining workers."),
    *(Hint(rule, partial(says, rule=rule), text) for rule, text in (
        ("less than", "A worker may be at most `bound` ahead, so a worker that is exactly `bound` "
         "ahead may pull. Otherwise no worker could begin with bound 0."),
        ("never waits", "No worker ever waits. Compare the worker's clock with the slowest "
        "clock."),
        ("the slow wait", "Your rule holds back the slow worker, and the fast worker runs away."),
        ("the mean", "Compare with the slowest worker, not with the mean: the slowest worker's "
        "gradients are the oldest."),
        ("done ones count", "The clock of a worker that is done never moves again. The remaining "
         "workers must not wait for such a worker."),
        ("counts pulls", "A clock counts pushes, not pulls."),
        ("bound on age", "Your rule bounds the age, in versions. Here the bound is on clocks, "
         "which count a worker's own pushes."),
        ("a barrier", "A barrier every few steps also stops workers that are not ahead."),
    )),
    Hint("another rule", lambda s: s.wrong("may pull"),
         "A worker may pull while its clock minus the smallest clock of the workers that are not "
         "done is at most the bound."),
    Hint("not applied at once", lambda s: s.wrong("parameters"),
         "Apply a push at once, as in Asynchronous: super().push(worker, gradient)."),
)
# fmt: on
