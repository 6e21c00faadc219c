"""What each collective of torch.distributed costs on emulated links: whose algorithm it takes."""

from functools import lru_cache

from ddpkit.link import Links
from ddpkit.simulate.costs import cost
from ddpkit.simulate.plans import schedule
from ddpkit.simulate.schedules import Schedule
from ddpkit.simulate.timing import makespan_ns

# The algorithm of each collective (`costs.FORMULAS`), and whether its formula counts the bytes that
# all ranks hand in together, not those of one rank.
OPERATIONS = {
    "all_reduce": ("ring", False),
    "all_gather": ("all_gather", True),
    "all_gather_into_tensor": ("all_gather", True),
    "reduce_scatter": ("reduce_scatter", True),  # a list, of which one part is known
    "reduce_scatter_tensor": ("reduce_scatter", False),
    "all_to_all": ("round_robin", False),  # a list as well
    "all_to_all_single": ("reduce_scatter", False),  # as many rounds, of as many bytes
    "broadcast": ("broadcast", False),
    "reduce": ("reduce", False),
    "scatter": ("scatter", True),
    "gather": ("gather", True),
    "barrier": ("barrier", False),
}
# They are over for no rank before all have posted their parts: gloo reduces in a ring, and the rank
# that hands its sum down a tree would go on in emulated time, and in gloo wait for others.
AFTER_ALL = frozenset({"reduce"})


def schedule_of(operation: str, nbytes: int, world_size: int, root: int = 0) -> Schedule:
    """The messages of a collective, by the byte. ``nbytes`` is what one rank hands in."""
    algorithm, together = OPERATIONS[operation.removesuffix("_coalesced")]
    return _schedule(algorithm, world_size, nbytes * world_size if together else nbytes, root)


_schedule = lru_cache(64)(schedule)  # a step of training has the same ones again and again


def collective_ns(operation: str, nbytes: int, links: Links) -> int:
    """How long a collective takes, in ns, from the common start to the last rank's end.

    ``nbytes`` is what one rank hands in. On equal links by the formula of its algorithm, else event
    by event.
    """
    if not links.equal:
        return makespan_ns(schedule_of(operation, nbytes, len(links)), links, 1)
    algorithm, together = OPERATIONS[operation.removesuffix("_coalesced")]
    total = nbytes * len(links) if together else nbytes
    return cost(algorithm, len(links), total, links.slowest)
