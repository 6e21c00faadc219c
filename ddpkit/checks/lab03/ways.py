"""The six all-reduces, and the sentences in which their hints differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """An all-reduce algorithm, and advice for answers that differ from the algorithm."""

    name: str
    points: int
    about: str
    a: str  # the name with its article, like "a ring"
    lacks: str  # advice if a sum lacks a rank's part
    twice: str  # advice if a sum has a part twice
    much: str  # advice if the answer sends too much
    # advice if too many messages follow each other in a row
    row: str = "Do not wait for a send before you receive: isend, then recv, then wait."
    # true if the sender and receiver of each message are fixed; a tree may have several forms
    settled: bool = True
    whole: bool = True  # messages hold whole tensors; otherwise chunks of any lengths
    same_bits: bool = True  # the result has the same bits on all ranks
    uneven: int = 5  # number of ranks in the case with one or two ranks beyond a power of two


WAYS = (
    Way(
        "all_to_all",
        2,
        about="Every rank sends x to every rank, all at once, and adds in the order of the ranks.",
        a="all-to-all",
        lacks="Each rank adds its own x and one x from each of the remaining n - 1 ranks.",
        twice="Each rank's x counts once, including your own.",
        much="Send x once to each of the remaining ranks.",
        row="Start all messages before you wait for the first of them.",
    ),
    Way(
        "round_robin",
        2,
        about="An exchange with one rank after the next, in n-1 rounds.",
        a="a round robin",
        lacks="The algorithm takes n - 1 rounds, with a new distance in each: 1, 2, ..., n - 1.",
        twice="Send x in each round, not the current sum.",
        much="In each round, send x to one rank, receive one tensor, and add it.",
        same_bits=False,
    ),
    Way(
        "master_worker",
        2,
        about="Rank 0 adds up the tensors of all ranks, and sends the sum to all ranks.",
        a="a master",
        lacks=("Rank 0 sends the sum only after adding all n - 1 workers' tensors to its own."),
        twice="Rank 0 adds each worker's tensor once, and a worker adds nothing.",
        much="A worker sends x only to rank 0, and rank 0 sends the sum once to each worker.",
        row="All workers send at the same time, and rank 0 sends to all at the same time.",
    ),
    Way(
        "tree",
        2,
        about="Up a binomial tree and down again.",
        a="a binomial tree",
        lacks="A rank passes its sum up when the sum includes all ranks below. On the way down, "
        "pass on the whole sum.",
        twice="On the way down the sum is copied, not added.",
        much="A rank sends up once, and down once to each rank directly below.",
        row="In a round, many pairs exchange at the same time: ceil(log2 n) rounds up, and as many "
        "down.",
        settled=False,
    ),
    Way(
        "butterfly",
        3,
        about="Recursive doubling, with any number of ranks.",
        a="a butterfly",
        uneven=6,  # the second rank beyond 4 has a partner other than rank 0
        lacks=(
            "Exchange at distance 1, 2, 4, ... until the sum includes all ranks, and send the "
            "current sum each time. Ranks beyond the largest power of two give first and get the "
            "sum at the end."
        ),
        twice="The distance doubles in each round: 1, 2, 4, ...",
        much="In each round, a rank exchanges its sum with a single partner, rank ^ distance.",
    ),
    Way(
        "ring",
        4,
        about="Chunks go twice around: share-reduce, then share only.",
        a="a ring",
        whole=False,
        lacks=(
            "Each half takes n - 1 steps: first until a rank has the whole sum of one chunk, then "
            "until all ranks have this sum."
        ),
        twice="Follow the chunk on paper, step by step: on which ranks is a part added to the "
        "chunk?",
        much="Pass on one of n chunks in each step, unchanged: not the whole tensor, no padding.",
    ),
)
