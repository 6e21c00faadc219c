"""Lab 19: a quorum on a simulated clock: visits of ranks to rounds, and the right rank lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.checks.shared.meeting import Visit, meet
from ddpkit.checks.shared.store import LooksForEver
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.guard import Careless

if TYPE_CHECKING:
    from torch import distributed as dist

    from ddpkit.exercises.guard import Answer

Plans = Sequence[Sequence[Visit]]
LATE = 0.05  # seconds: a visit may end this much after (or before) the right moment
STORE = 0.01  # seconds of a message to the store, in a race


def lists(answer: Answer, plans: Plans, least: int, seconds: float) -> Observed:
    """Return, for each rank, the list or the exception of each visit, and its seconds."""

    def end(store: dist.Store, name: str, rank: int) -> Any:
        return _end(answer, store, name, rank, len(plans), least, seconds)

    found, _ = meet(end, plans)
    return {
        "lists": [[each for each, _ in of_rank] for of_rank in found],
        "took": [[seconds for _, seconds in of_rank] for of_rank in found],
    }


def races(answer: Answer, seconds: float, offsets: Sequence[float]) -> Observed:
    """Return, for each rank, the list of each round in which two ranks decide at one time.

    There is one round for each offset. A message to the store takes STORE seconds. The time of
    ranks 0 and 1 is over nearly at once, and rank 2 asks `offset` seconds after the end of rank
    0's time. So rank 1 may see rank 2 in the store, although rank 0 has not seen it.
    """
    rounds = []
    for offset in offsets:

        def end(store: dist.Store, name: str, rank: int) -> Any:
            return _end(answer, store, name, rank, 3, 2, seconds)

        plans = [[("race", 0.0)], [("race", 1.5 * STORE)], [("race", seconds + offset)]]
        found, _ = meet(end, plans, STORE)
        rounds.append([of_rank[0][0] for of_rank in found])
    return {"lists": [list(of_rank) for of_rank in zip(*rounds, strict=True)]}


def read_races(seen: Observed) -> Observed:
    """Say if all ranks have one list in each round; `apart` is the first round with two lists.

    A list has at least the two ranks that are needed.
    """
    rounds = list(zip(*seen["lists"], strict=True))
    apart = [number for number, each in enumerate(rounds) if any(one != each[0] for one in each)]
    lists = all(isinstance(one, list) and len(one) > 1 for each in rounds for one in each)
    return {"lists": seen["lists"], "one list": not apart and lists, "apart": apart[:1]}


def _end(
    answer: Answer, store: dist.Store, name: str, rank: int, n: int, least: int, seconds: float
) -> Any:
    try:
        found = answer(store, name, rank, n, least, seconds)
    except LooksForEver:
        return "looks forever"
    except NotImplementedError:
        raise
    except Careless:  # a RuntimeError of the kit, not of the answer
        return "a NoneType"
    except Exception as error:
        return "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
    numbers = isinstance(found, list | tuple) and all(type(each) is int for each in found)
    return list(found) if numbers else f"a {type(found).__name__}"


def right(plans: Plans, least: int, seconds: float) -> tuple[list[list[object]], list[list[float]]]:
    """Return, for each rank, the right result of each visit, and the seconds that the visit takes.

    A round must be the k-th visit of each rank that comes to it, with the same k for all ranks.
    """
    n = len(plans)
    asked: dict[str, dict[int, float]] = {}
    ends: list[list[object]] = [[] for _ in plans]
    took: list[list[float]] = [[] for _ in plans]
    now = [0.0] * n
    for visit in range(max(map(len, plans))):
        here = [rank for rank in range(n) if visit < len(plans[rank])]
        for rank in here:
            name, later = plans[rank][visit]
            now[rank] += later
            asked.setdefault(name, {})[rank] = now[rank]
        for rank in here:
            name = plans[rank][visit][0]
            end, until = _decided(asked[name], rank, n, least, seconds)
            ends[rank].append(end)
            took[rank].append(round(until - now[rank], 3))
            now[rank] = until
    return ends, took


def _decided(
    came: dict[int, float], rank: int, n: int, least: int, seconds: float
) -> tuple[object, float]:
    """Return the right result of a rank's visit, and the moment at which the visit ends."""
    if len(came) == n:
        moments = sorted([*(at + seconds for at in came.values()), max(came.values())])
    else:
        moments = sorted(at + seconds for at in came.values())
    for moment in moments:
        there = sorted(each for each, at in came.items() if at <= moment)
        whole = len(there) == n
        over = any(at + seconds == moment for at in came.values())
        if whole or (over and len(there) >= least):
            if came[rank] + seconds < moment:
                break  # the rank gave up before this moment
            return there, max(moment, came[rank])
    return "RuntimeError", came[rank] + seconds


def read(plans: Plans, least: int, seconds: float, seen: Observed) -> Observed:
    """Compare the results and the seconds of each visit with the right ones.

    "slow" has [rank, visit, seconds, right seconds, known] for each visit that was too long or too
    short. `known` is true if some rank had its list of the same round before the visit ended.
    """
    ends, due = right(plans, least, seconds)
    done = _moments(plans, seen)
    slow = [
        [rank, at, took, wanted, _first(done, seen, at) < done[rank][at] - LATE]
        for rank, (of_rank, of_due) in enumerate(zip(seen["took"], due, strict=True))
        for at, (took, wanted) in enumerate(zip(of_rank, of_due, strict=False))
        if abs(took - wanted) > LATE
    ]
    pairs = zip(seen["lists"], ends, strict=True)
    return {
        "lists": seen["lists"],
        "in time": not slow,
        "slow": slow,
        "wrong at": [
            [rank, at]
            for rank, (got, wanted) in enumerate(pairs)
            for at, (one, other) in enumerate(zip(got, wanted, strict=False))
            if one != other
        ],
    }


def _moments(plans: Plans, seen: Observed) -> list[list[float]]:
    """Return, for each rank, the moment at which each visit ended."""
    found = []
    for plan, of_rank in zip(plans, seen["took"], strict=True):
        now, ended = 0.0, []
        for (_, later), took in zip(plan, of_rank, strict=False):
            now += later + took
            ended.append(now)
        found.append(ended)
    return found


def _first(done: Sequence[Sequence[float]], seen: Observed, at: int) -> float:
    """Return the earliest moment at which any rank had its list in visit number `at`."""
    pairs = zip(done, seen["lists"], strict=True)
    return min(
        (moments[at] for moments, ends in pairs if at < len(ends) and isinstance(ends[at], list)),
        default=float("inf"),
    )
