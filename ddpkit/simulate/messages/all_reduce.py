"""The schedules of six algorithms for an all-reduce, the sum of a vector over all ranks.

Each function takes the number of ranks ``n`` and the ``length`` of the vector in elements. Adding
is free here: only messages take time (γ = 0 in the notation of Thakur et al.).

Sources: Thakur, Rabenseifner, Gropp (2005) for tree and recursive doubling; P. Patarasuk, X. Yuan,
"Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", JPDC 69 (2009) for the ring.
"""

from collections.abc import Iterator
from dataclasses import replace

from ddpkit.simulate.messages import collectives
from ddpkit.simulate.messages.schedules import Recv, RecvReduce, Send, Step, Steps, doublings


def all_to_all(n: int, length: int, root: int = 0) -> Steps:
    """Return steps in which every rank sends its vector to all ranks, and adds up all vectors.

    All messages are sent at once.
    """
    for far in range(1, n):  # distance 1 first, then 2, ...: no rank receives from two at a time
        for rank in range(n):
            yield Send(rank, (rank + far) % n, (0, length), 0, original=True)
    for far in range(1, n):
        for rank in range(n):
            yield RecvReduce(rank, (rank - far) % n, (0, length), 0)


def round_robin(n: int, length: int, root: int = 0) -> Steps:
    """Return the messages of `all_to_all` in n-1 rounds, one exchange after another."""
    for far in range(1, n):
        for rank in range(n):
            yield Send(rank, (rank + far) % n, (0, length), far - 1, original=True)
            yield RecvReduce(rank, (rank - far) % n, (0, length), far - 1)


def master_worker(n: int, length: int, root: int = 0) -> Steps:
    """Return steps in which the root gets and adds all vectors, and sends the sum to all ranks."""
    workers = [(root + i) % n for i in range(1, n)]
    for worker in workers:
        yield Send(worker, root, (0, length), 0)
        yield RecvReduce(root, worker, (0, length), 0)
    for worker in workers:
        yield Send(root, worker, (0, length), 1)
        yield Recv(worker, root, (0, length), 1)


def tree(n: int, length: int, root: int = 0) -> Steps:
    """Return the steps of a binomial tree: sums go up to the root, then the total goes down."""
    yield from collectives.reduce(n, length, root)
    yield from _later(collectives.broadcast(n, length, root), doublings(n))


def butterfly(n: int, length: int, root: int = 0) -> Steps:
    """Return the steps of recursive doubling: ranks 1, 2, 4, ... apart exchange their sums so far.

    If n is not a power of two, each rank beyond the greatest power of two first gives its vector to
    a rank below this power, and gets the sum from that rank at the end. This adds two rounds.
    """
    doubled = 2 ** (n.bit_length() - 1)  # the greatest power of two in n
    beyond, whole = n - doubled, (0, length)
    for low in range(beyond):
        yield Send(doubled + low, low, whole, 0)
        yield RecvReduce(low, doubled + low, whole, 0)
    for k in range(doublings(doubled)):
        for rank in range(doubled):
            yield Send(rank, rank ^ 2**k, whole, k + (beyond > 0))
            yield RecvReduce(rank, rank ^ 2**k, whole, k + (beyond > 0))
    for low in range(beyond):
        yield Send(low, doubled + low, whole, doublings(doubled) + 1)
        yield Recv(doubled + low, low, whole, doublings(doubled) + 1)


def ring(n: int, length: int, root: int = 0) -> Steps:
    """Return a ring's reduce-scatter, then its all-gather: n-1 rounds each, chunks of length/n."""
    yield from collectives.reduce_scatter(n, length)
    yield from _later(collectives.all_gather(n, length), n - 1)


def _later(steps: Steps, rounds: int) -> Iterator[Step]:
    return (replace(step, round=step.round + rounds) for step in steps)
