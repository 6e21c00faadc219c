"""Collectives of many equal ranks, simulated with steps for the first few ranks only.

Rank r of a group is a copy of rank r mod p. In a ring, and in any other schedule that looks alike
from each rank, messages of a copy move like messages of the original. So only the first p ranks
have steps. A step names the peer's true number in the group, because this number decides the link
of the message. If the peer is a copy, `Network` hands the message to the copy's original.

A ring of 512 ranks has 511 rounds. Beyond `MOST_ROUNDS`, one message stands for several rounds in a
row: it has the bytes and the latencies of all these rounds. On equal links this merging does not
change the time of the ring. Between hosts, the difference is less than the time of one merged
message.
"""

from collections.abc import Iterator
from functools import lru_cache

from ddpkit.simulate.engine.operations import EXCHANGES, OPERATIONS
from ddpkit.simulate.messages.schedules import Part, Recv, Schedule, Send, Step, doublings

MOST_ROUNDS = 64
MERGED = 16  # the fewest messages of a rank in a ring of more than `MOST_ROUNDS` rounds
# how often each chunk travels around the ring
PHASES = {"ring": 2, "all_gather": 1, "reduce_scatter": 1}


def can_be_folded(operation: str) -> bool:
    """True if an operation has no root, so that every rank sends and receives in the same way."""
    operation = operation.removesuffix("_coalesced")
    return operation in EXCHANGES or OPERATIONS[operation][0] in {*PHASES, "barrier"}


@lru_cache(64)
def folded_schedule(operation: str, nbytes: int, world_size: int, present: int) -> Schedule:
    """Return the schedule of a collective with steps for the first ``present`` ranks only.

    The peers in the steps are numbered from 0 to ``world_size`` - 1.

    ``nbytes`` is the input of one rank. If the input cannot be cut into ``world_size`` equal
    chunks, all chunks are as long as the longest chunk, which decides when a ring ends. An exchange
    has equal parts.
    """
    name = operation.removesuffix("_coalesced")
    length = nbytes
    if name in EXCHANGES:
        algorithm = "exchange"
        length = nbytes * world_size if name == "all_to_all" else nbytes
    else:
        algorithm, together = OPERATIONS[name]
        length = nbytes * world_size if together else nbytes
    chunk = -(-length // world_size)
    steps = [
        step
        for rank in range(present)
        for step in (
            _ring(rank, world_size, chunk, PHASES[algorithm], present)
            if algorithm in PHASES
            else _at_distances(rank, world_size, _distances(algorithm, world_size, chunk))
        )
    ]
    return Schedule(algorithm, operation, world_size, length, tuple(steps))


def _ring(rank: int, n: int, chunk: int, phases: int, present: int) -> Iterator[Step]:
    rounds = phases * (n - 1)
    messages = rounds if rounds <= MOST_ROUNDS else max(MERGED, 2 * present)
    for number in range(messages):
        first, last = (rounds * each // messages for each in (number, number + 1))
        part = 0, chunk * (last - first)
        yield Send(rank, (rank + 1) % n, part, number, rounds=last - first)
        yield Recv(rank, (rank - 1) % n, part, number, rounds=last - first)


def _distances(algorithm: str, n: int, chunk: int) -> list[tuple[int, Part]]:
    """Return, for each round, the distance to the receiver in ranks, and the part that is sent."""
    if algorithm == "barrier":
        return [(2**k, (0, 0)) for k in range(doublings(n))]
    return [(far, (0, chunk)) for far in range(1, n)] if chunk else []


def _at_distances(rank: int, n: int, rounds: list[tuple[int, Part]]) -> Iterator[Step]:
    for number, (far, part) in enumerate(rounds):
        yield Send(rank, (rank + far) % n, part, number)
        yield Recv(rank, (rank - far) % n, part, number)
