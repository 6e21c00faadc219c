"""The time of each algorithm as a formula of the α–β model, on the links of `ddpkit.link`.

n ranks have equal links of latency α and bandwidth β; t = S/β for S bytes. S is the whole vector:
the input of each rank of an all_reduce, the root's input of a scatter, the result of an all_gather.
Adding is free. The formulas agree exactly with the event by event times of `timing`, up to the
rounding of a chunk to whole elements and of a message's time to whole nanoseconds.

Papers often count a round as α + t, and rounds one after another. On these links, sends that do not
wait for each other share one α (`textbook` gives a paper's formula if it differs).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from ddpkit.asked import not_for
from ddpkit.link import Link
from ddpkit.simulate.messages.by_name import check_algorithm
from ddpkit.simulate.messages.schedules import doublings

Terms: TypeAlias = frozenset[tuple[float, float]]  # {(a, b)}: the time is the largest a·α + b·t

THAKUR = (
    "R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in "
    "MPICH. Int. J. High Performance Computing Applications 19 (2005)"
)
PATARASUK = (
    "P. Patarasuk, X. Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations. "
    "J. Parallel and Distributed Computing 69 (2009)"
)
HENSGEN = (
    "D. Hensgen, R. Finkel, U. Manber: Two Algorithms for Barrier Synchronization. "
    "Int. J. Parallel Programming 17 (1988)"
)
ONE_SIDE = "here: all messages pass one side of one link, one after the other"


@dataclass(frozen=True, slots=True)
class Formula:
    """The cost of one algorithm as a formula, with its source."""

    text: str  # the formula in α, t = S/β and n
    of_ranks: Callable[[int], Terms]  # the terms, a function of the number of ranks
    source: str
    textbook: str = ""  # the source's formula, if it differs from ours

    def terms(self, world_size: int) -> Terms:
        """Return pairs (a, b): the time is the largest a·α + b·t of all pairs."""
        not_for("predict")
        return self.of_ranks(world_size)


def cost(algorithm: str, world_size: int, nbytes: int, link: str | Link) -> int:
    """Return the time of an algorithm on equal links, from common start to the last rank, in ns.

    Raises ValueError for an unknown algorithm, or for fewer than 1 rank.
    """
    not_for("predict")
    link = Link.parse(link)
    wire = nbytes / link.bytes_per_s * 1e9
    return round(max(a * link.latency_ns + b * wire for a, b in terms(algorithm, world_size)))


@cache
def terms(algorithm: str, world_size: int) -> Terms:
    """Return pairs (a, b): the time on equal links is the largest a·α + b·t of all pairs."""
    check_algorithm(algorithm)
    if world_size < 1:
        raise ValueError(f"a collective has at least 1 rank, not {world_size}")
    return FORMULAS[algorithm].terms(world_size) if world_size > 1 else frozenset({(0.0, 0.0)})


def bus_bandwidth(operation: str, world_size: int, nbytes: int, ns: int) -> float:
    """Return an operation's bytes per second over each link: the "busbw" of NCCL's tests.

    The value can be compared between operations and world sizes. It is S/time, times the share of S
    that any algorithm must move over each link (nccl-tests, doc/PERFORMANCE.md). ``operation`` is
    torch.distributed's name, and ``nbytes`` is S.
    """
    n = world_size
    shares = {
        "all_reduce": 2 * (n - 1) / n,
        "all_gather": (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "scatter": (n - 1) / n,
        "gather": (n - 1) / n,
        "broadcast": 1.0,
        "reduce": 1.0,
    }
    if operation not in shares:
        raise ValueError(f"there is no bus bandwidth of {operation!r}: choose {', '.join(shares)}")
    return nbytes / (ns / 1e9) * shares[operation] if ns else float("inf")


def _one(a: float, b: float) -> Terms:
    return frozenset({(float(a), float(b))})


def _binomial(n: int) -> Terms:
    """Return the terms of a broadcast by a binomial tree, one term for each rank.

    The vector travels to rank r over as many links as the binary form of r has ones. On this way,
    as many vectors are sent one after another as the binary form of r has digits. So the last rank
    to get the vector need not be the rank with the most ones.
    """
    return frozenset({(float(r.bit_count()), float(r.bit_length())) for r in range(n)})


def _up(n: int) -> Terms:
    """Return the terms of a reduce by a binomial tree: ⌊log2 n⌋ latencies and ⌈log2 n⌉ vectors."""
    return _one(n.bit_length() - 1, doublings(n))


def _up_and_down(n: int) -> Terms:
    return frozenset({(a + c, b + d) for a, b in _up(n) for c, d in _binomial(n)})


def _doubling(n: int) -> Terms:
    """Return the terms of recursive doubling among p = 2^k ranks, with n-p further ranks "beyond".

    A rank beyond takes part in a first and in a last round only.

    A term (a, b) is a path with a latencies and b vectors. The vector of a rank beyond has reached
    every doubling rank after k+1 rounds: (k+1, k+1). It reaches the other ranks beyond over m+2
    latencies, where m is the number of binary digits of n-p-1. But a doubling rank that serves a
    rank beyond has to receive and send k+2 vectors: (m+2, k+2).
    """
    k = n.bit_length() - 1
    beyond = n - 2**k
    if not beyond:
        return _one(k, k)
    m = (beyond - 1).bit_length()
    return frozenset({(k + 1.0, k + 1.0), (m + 2.0, k + 2.0)})


FORMULAS = {
    "broadcast": Formula(
        "max over ranks r < n: ones(r)·α + digits(r)·t, in binary; log2 n · (α + t) for n = 2^k",
        _binomial,
        THAKUR,
        "⌈log2 n⌉ (α + t)",
    ),
    "reduce": Formula("⌊log2 n⌋ α + ⌈log2 n⌉ t", _up, THAKUR, "⌈log2 n⌉ (α + t)"),
    "scatter": Formula(
        "α + (n-1)/n · t",
        lambda n: _one(1, (n - 1) / n),
        ONE_SIDE,
        "⌈log2 n⌉ α + (n-1)/n · t (Thakur et al., binomial tree)",
    ),
    "gather": Formula(
        "α + (n-1)/n · t",
        lambda n: _one(1, (n - 1) / n),
        ONE_SIDE,
        "⌈log2 n⌉ α + (n-1)/n · t (Thakur et al., binomial tree)",
    ),
    "all_gather": Formula("(n-1) (α + t/n)", lambda n: _one(n - 1, (n - 1) / n), THAKUR),
    "reduce_scatter": Formula("(n-1) (α + t/n)", lambda n: _one(n - 1, (n - 1) / n), PATARASUK),
    "barrier": Formula("⌈log2 n⌉ α", lambda n: _one(doublings(n), 0), HENSGEN),
    "all_to_all": Formula("α + (n-1) t", lambda n: _one(1, n - 1), ONE_SIDE, "(n-1) (α + t)"),
    "round_robin": Formula("(n-1) (α + t)", lambda n: _one(n - 1, n - 1), THAKUR),
    "master_worker": Formula(
        "2α + 2(n-1) t", lambda n: _one(2, 2 * (n - 1)), ONE_SIDE, "2(n-1) (α + t)"
    ),
    "tree": Formula("reduce + broadcast", _up_and_down, THAKUR, "2 ⌈log2 n⌉ (α + t)"),
    "butterfly": Formula(
        "log2 n · (α + t) for n = 2^k; else, with k = ⌊log2 n⌋ and m the binary digits of "
        "n - 2^k - 1: max of (k+1)(α + t) and (m+2) α + (k+2) t",
        _doubling,
        THAKUR,
        "(⌊log2 n⌋ + 2) (α + t) where n is no power of two",
    ),
    "ring": Formula("2(n-1) (α + t/n)", lambda n: _one(2 * (n - 1), 2 * (n - 1) / n), PATARASUK),
}
