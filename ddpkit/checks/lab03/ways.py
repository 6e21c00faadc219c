"""The six all-reduces, and the sentences in which the hints for them differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """One of the six, and what to say to an answer that goes another way."""

    name: str
    points: int
    about: str
    a: str  # "a ring"
    lacks: str  # what to do if a sum lacks somebody's part
    twice: str  # ... if a part is in it twice
    much: str  # ... if it sends too much
    row: str = "Do not wait for a send before you receive: isend, then recv, then wait."
    settled: bool = True  # which rank sends what to whom; a tree may stand in several ways
    whole: bool = True  # tensors are sent; else chunks of them, whose lengths are free
    same_bits: bool = True  # on all ranks
    uneven: int = 5  # ranks of the case that has one or two beyond a power of two


WAYS = (
    Way(
        "all_to_all",
        2,
        about="Every rank sends x to every other, all at once, and adds in the order of the ranks.",
        a="all-to-all",
        lacks="Each rank adds its own x and one from each of the n - 1 others.",
        twice="Each rank's x counts once, your own too.",
        much="Send x once to each of the others.",
        row="Start all messages before you wait for the first of them.",
    ),
    Way(
        "round_robin",
        2,
        about="An exchange with one rank after the other, in n-1 rounds.",
        a="a round robin",
        lacks="It takes n - 1 rounds, with another distance in each: 1, 2, ..., n - 1.",
        twice="Send x in each round, and not the sum so far.",
        much="In each round send x to one rank, receive one tensor, add it.",
        same_bits=False,
    ),
    Way(
        "master_worker",
        2,
        about="Rank 0 adds up what all send it, and sends them the sum.",
        a="a master",
        lacks=(
            "Rank 0 sends the sum when it has added all n - 1 workers' tensors to its own, not "
            "before."
        ),
        twice="Rank 0 adds each worker's tensor once, and a worker adds nothing.",
        much="A worker sends x to rank 0 only, and rank 0 the sum once to each worker.",
        row="All workers send at the same time, and rank 0 sends to all at the same time.",
    ),
    Way(
        "tree",
        2,
        about="Up a binomial tree and down again.",
        a="a binomial tree",
        lacks="A rank hands its sum over when all below it are in it; down goes the whole sum.",
        twice="On the way down the sum is copied, not added.",
        much="A rank sends up once, and down once to each of those below it.",
        row="In a round many pairs talk at the same time: ceil(log2 n) up, and as many down.",
        settled=False,
    ),
    Way(
        "butterfly",
        3,
        about="Recursive doubling, with any number of ranks.",
        a="a butterfly",
        uneven=6,  # of two ranks beyond, one meets another than rank 0
        lacks=(
            "Exchange at distance 1, 2, 4, ... until all are in it, and each time send the sum so "
            "far. Ranks beyond the largest power of two give first and get the sum at the end."
        ),
        twice="The distance doubles in each round: 1, 2, 4, ...",
        much="In each round a rank exchanges its sum with one other, rank ^ distance.",
    ),
    Way(
        "ring",
        4,
        about="Chunks go twice around: share-reduce, then share only.",
        a="a ring",
        whole=False,
        lacks=(
            "Each half takes n - 1 steps: first until a rank has the whole sum of one chunk, then "
            "until all ranks have it."
        ),
        twice="Follow that chunk on paper, step by step: on which ranks is it added to?",
        much="Pass on one chunk of n in each step, as it is: not the whole tensor, no padding.",
    ),
)
