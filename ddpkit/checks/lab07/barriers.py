"""Lab 07: visits to a barrier in a store: the outcome of each visit, and its seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.distributed import HashStore, Store

from ddpkit.checks.shared.meeting import Visit, meet
from ddpkit.checks.shared.store import LooksForEver
from ddpkit.exercises.raised import listed

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


def visits(answer: Answer, plans: Sequence[Sequence[Visit]], timeout: float) -> dict[str, object]:
    """Return the outcome (`_end`) and the seconds of each visit, by rank.

    "deleted" is true if an answer deleted a key of the store.
    """

    def end(store: Store, name: str, rank: int) -> list[int] | str:
        return _end(answer, store, name, rank, len(plans), timeout)

    found, kept = meet(end, plans)
    return {
        "ends": [[each for each, _ in of_rank] for of_rank in found],
        "took": [[seconds for _, seconds in of_rank] for of_rank in found],
        "deleted": kept.deleted,
    }


def alone_of(
    answer: Answer, name: str, world_size: int, timeout: float
) -> dict[str, list[list[list[int] | str]]]:
    """Return the outcome of rank 0's visit to a torch store that no other rank visits."""
    return {"ends": [[_end(answer, HashStore(), name, 0, world_size, timeout)]]}


def _end(
    answer: Answer, store: Store, name: str, rank: int, world_size: int, timeout: float
) -> list[int] | str:
    """Return the outcome of one call of the barrier.

    The outcome is the list of ranks that the RuntimeError names, "passes" if there is no error, or
    the name of a different error.
    """
    try:
        answer(store, name, rank, world_size, timeout)
    except LooksForEver:
        return "looks for ever"
    except NotImplementedError:
        raise
    except RuntimeError as error:
        return listed(error)
    except Exception as error:
        return type(error).__name__
    return "passes"
