"""What each collective of torch.distributed costs on emulated links: whose algorithm it takes."""

from ddpkit.link import Links
from ddpkit.simulate.costs import cost

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


def collective_ns(operation: str, nbytes: int, links: Links, *, is_root: bool = False) -> int:
    """How long a collective takes on the slowest of the links, in ns, once the last rank is in.

    ``nbytes`` is what one rank hands in. A rank that hands its part to a root does not wait for the
    parts of the others.
    """
    if operation == "gather" and not is_root:
        return links.slowest.wire_ns(nbytes)
    algorithm, together = OPERATIONS[operation.removesuffix("_coalesced")]
    total = nbytes * len(links) if together else nbytes
    return cost(algorithm, len(links), total, links.slowest)
