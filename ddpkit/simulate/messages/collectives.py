"""The schedules of all collectives except the all-reduce.

Each function takes the number of ranks ``n``, the ``length`` of the whole vector in elements, and
the ``root``. Every rank has room for the whole vector. Where a rank owns a chunk (scatter, gather,
all_gather, reduce_scatter), rank r owns chunk r.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", IJHPCA 19 (2005); the dissemination barrier: D. Hensgen, R. Finkel, U. Manber, "Two
Algorithms for Barrier Synchronization", IJPP 17 (1988).
"""

from ddpkit.simulate.messages.schedules import Recv, RecvReduce, Send, Steps, chunk, doublings


def broadcast(n: int, length: int, root: int = 0) -> Steps:
    """Return the steps of a binomial tree.

    In round k, each of the 2^k ranks that have the vector sends it to the rank 2^k further.
    """
    for k in range(doublings(n)):
        for rank in range(min(2**k, n - 2**k)):
            here, there = (rank + root) % n, (rank + 2**k + root) % n
            yield Send(here, there, (0, length), k)
            yield Recv(there, here, (0, length), k)


def reduce(n: int, length: int, root: int = 0) -> Steps:
    """Return the steps of a binomial tree, as in lab 02.

    In round k, every second remaining rank sends its sum to the rank 2^k below.
    """
    for k in range(doublings(n)):
        for rank in range(0, n - 2**k, 2 ** (k + 1)):
            here, there = (rank + root) % n, (rank + 2**k + root) % n
            yield Send(there, here, (0, length), k)
            yield RecvReduce(here, there, (0, length), k)


def scatter(n: int, length: int, root: int = 0) -> Steps:
    """Return steps in which the root sends each rank its chunk.

    With a tree, the root would send no fewer bytes.
    """
    for round in range(n - 1):
        peer = (root + round + 1) % n
        yield Send(root, peer, chunk(length, n, peer), round)
        yield Recv(peer, root, chunk(length, n, peer), round)


def gather(n: int, length: int, root: int = 0) -> Steps:
    """Return steps in which each rank sends its chunk to the root."""
    for round in range(n - 1):
        peer = (root + round + 1) % n
        yield Send(peer, root, chunk(length, n, peer), round)
        yield Recv(root, peer, chunk(length, n, peer), round)


def all_gather(n: int, length: int, root: int = 0) -> Steps:
    """Return a ring's steps: each rank sends its right neighbour the chunk that it got last.

    In the first round each rank sends its own chunk.
    """
    for round in range(n - 1):
        for rank in range(n):
            mine, next_one = (chunk(length, n, (rank - round - i) % n) for i in (0, 1))
            yield Send(rank, (rank + 1) % n, mine, round)
            yield Recv(rank, (rank - 1) % n, next_one, round)


def reduce_scatter(n: int, length: int, root: int = 0) -> Steps:
    """Return a ring's steps: each chunk's sum travels round the ring and ends at its owner.

    The sum starts at the owner's right neighbour, and each rank adds its own values.
    """
    for round in range(n - 1):
        for rank in range(n):
            mine, next_one = (chunk(length, n, (rank - round - i) % n) for i in (1, 2))
            yield Send(rank, (rank + 1) % n, mine, round)
            yield RecvReduce(rank, (rank - 1) % n, next_one, round)


def barrier(n: int, length: int = 0, root: int = 0) -> Steps:
    """Return the steps of the dissemination barrier; its messages have no bytes.

    After round k each rank knows that 2^(k+1) ranks have entered the barrier.
    """
    for k in range(doublings(n)):
        for rank in range(n):
            yield Send(rank, (rank + 2**k) % n, (0, 0), k)
            yield Recv(rank, (rank - 2**k) % n, (0, 0), k)
