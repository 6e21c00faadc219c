"""The function `schedule`, which returns the schedule of an algorithm by its name."""

from collections.abc import Callable

from ddpkit.asked import not_for
from ddpkit.simulate.messages import all_reduce, collectives
from ddpkit.simulate.messages.schedules import ANSWERED, Schedule, Steps

Generator = Callable[[int, int, int], Steps]  # (world size, length, root) -> steps

COLLECTIVES: dict[str, Generator] = {
    "broadcast": collectives.broadcast,
    "scatter": collectives.scatter,
    "gather": collectives.gather,
    "reduce": collectives.reduce,
    "all_gather": collectives.all_gather,
    "reduce_scatter": collectives.reduce_scatter,
    "barrier": collectives.barrier,
}
ALL_REDUCE: dict[str, Generator] = {
    "all_to_all": all_reduce.all_to_all,
    "master_worker": all_reduce.master_worker,
    "tree": all_reduce.tree,
    "round_robin": all_reduce.round_robin,
    "butterfly": all_reduce.butterfly,
    "ring": all_reduce.ring,
}
ALGORITHMS = COLLECTIVES | ALL_REDUCE


def schedule(algorithm: str, world_size: int, length: int, root: int = 0) -> Schedule:
    """Return the schedule of an algorithm on vectors of ``length`` elements.

    ``root`` counts only for collectives with a root. Raises ValueError for an unknown name, or for
    a root that is no rank.
    """
    not_for(*ANSWERED)
    check_algorithm(algorithm)
    if world_size < 1 or length < 0 or not 0 <= root < world_size:
        raise ValueError(
            "a schedule needs 1 rank or more, 0 elements or more, and a root among the ranks, not "
            f"{world_size} ranks, {length} elements and root {root}"
        )
    operation = algorithm if algorithm in COLLECTIVES else "all_reduce"
    steps = tuple(ALGORITHMS[algorithm](world_size, length, root))
    return Schedule(algorithm, operation, world_size, length, steps)


def check_algorithm(name: str) -> None:
    if name not in ALGORITHMS:
        raise ValueError(f"there is no algorithm {name!r}; there are {', '.join(ALGORITHMS)}")
