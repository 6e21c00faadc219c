"""The algorithm of each collective of torch.distributed, and its cost on emulated links."""

from collections.abc import Sequence
from functools import lru_cache

from ddpkit.link import Links
from ddpkit.simulate.engine.timing import makespan_ns
from ddpkit.simulate.messages.by_name import schedule
from ddpkit.simulate.messages.costs import cost
from ddpkit.simulate.messages.schedules import Part, Recv, Schedule, Send, Step

# The algorithm of each collective (`costs.FORMULAS`), and True if its formula counts the input
# bytes of all ranks together, False for the bytes of one rank.
OPERATIONS = {
    "all_reduce": ("ring", False),
    "all_gather": ("all_gather", True),
    "all_gather_into_tensor": ("all_gather", True),
    "reduce_scatter": ("reduce_scatter", True),  # a list of tensors; `nbytes` is one tensor's size
    "reduce_scatter_tensor": ("reduce_scatter", False),
    "all_to_all": ("round_robin", False),  # a list of tensors; `nbytes` is one tensor's size
    "all_to_all_single": ("reduce_scatter", False),  # costs as much as a reduce_scatter
    "broadcast": ("broadcast", False),
    "reduce": ("reduce", False),
    "scatter": ("scatter", True),
    "gather": ("gather", True),
    "barrier": ("barrier", False),
}
EXCHANGES = frozenset({"all_to_all", "all_to_all_single"})  # each rank has a part for each rank
# No rank ends these operations before all ranks have posted. The emulated tree would let some ranks
# go on earlier in emulated time, but gloo reduces in a ring, so all ranks wait for all in gloo.
AFTER_ALL = frozenset({"reduce"})


def schedule_of(operation: str, nbytes: int, world_size: int, root: int = 0) -> Schedule:
    """Return the messages of a collective, in bytes. ``nbytes`` is the input of one rank.

    In an all-to-all, all parts are equal here; `exchange` returns the messages for unequal parts.
    """
    operation = operation.removesuffix("_coalesced")
    if operation in EXCHANGES:
        return _equal_exchange(operation, nbytes, world_size)
    algorithm, together = OPERATIONS[operation]
    return _schedule(algorithm, world_size, nbytes * world_size if together else nbytes, root)


_schedule = lru_cache(64)(schedule)  # a training step needs the same schedules again and again


def exchange(operation: str, parts: Sequence[Sequence[int]]) -> Schedule:
    """Return the messages of an all-to-all in which ``parts[r][p]`` bytes go from rank r to p.

    There are n - 1 rounds. In round i each rank sends to the rank i places to its right, and
    receives from the rank i places to its left, before it begins the next round. A part without
    bytes is no message. (Thakur et al., section 4.3, "pairwise exchange".)
    """
    world_size = len(parts)
    steps = [
        step
        for rank, sends in enumerate(parts)
        for step in _exchange_steps(rank, sends, [sent[rank] for sent in parts])
    ]
    return Schedule("exchange", operation, world_size, max(map(sum, parts), default=0), (*steps,))


def exchange_of(operation: str, rank: int, sends: Sequence[int], takes: Sequence[int]) -> Schedule:
    """Return one rank's sends and receives in an `exchange`, from the sizes that the rank knows.

    sends  the number of bytes that the rank sends to each rank
    takes  the number of bytes that the rank receives from each rank
    """
    steps = (*_exchange_steps(rank, sends, takes),)
    return Schedule("exchange", operation, len(sends), max(sum(sends), sum(takes)), steps)


def _exchange_steps(rank: int, sends: Sequence[int], takes: Sequence[int]) -> list[Step]:
    n, steps = len(sends), list[Step]()
    for round in range(n - 1):
        peer, source = (rank + round + 1) % n, (rank - round - 1) % n
        if sends[peer]:
            steps.append(Send(rank, peer, _part(sends, peer), round, original=True))
        if takes[source]:
            steps.append(Recv(rank, source, _part(takes, source), round))
    return steps


def _part(sizes: Sequence[int], index: int) -> Part:
    """Return the start and the end of part `index` in the vector of all parts."""
    start = sum(sizes[:index])
    return start, start + sizes[index]


@lru_cache(64)
def _equal_exchange(operation: str, nbytes: int, world_size: int) -> Schedule:
    """Return the schedule of an all-to-all with equal parts.

    For all_to_all, ``nbytes`` is the size of one part; for all_to_all_single, of all parts
    together.
    """
    part = nbytes if operation == "all_to_all" else nbytes // world_size
    return exchange(operation, ((part,) * world_size,) * world_size)


def collective_ns(operation: str, nbytes: int, links: Links) -> int:
    """Return the time of a collective from the common start to the last rank's end, in ns.

    ``nbytes`` is the input of one rank. On equal links the algorithm's formula gives the time; on
    other links the engine plays all messages.
    """
    operation = operation.removesuffix("_coalesced")
    if not links.equal:
        return makespan_ns(schedule_of(operation, nbytes, len(links)), links, 1)
    if operation in EXCHANGES and not nbytes:
        return 0
    algorithm, together = OPERATIONS[operation]
    total = nbytes * len(links) if together else nbytes
    return cost(algorithm, len(links), total, links.slowest)
