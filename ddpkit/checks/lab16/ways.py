"""Lab 16: the bytes sent by three ways to divide a sequence, and wrong counts of the bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ddpkit.checks.shared.mistakes import Mistake

Question = tuple[Any, ...]  # arguments of `bytes_sent`; the last, `number`, may be missing
WAYS = ("gather", "ring", "heads")


def right(
    way: str,
    tokens: int,
    heads: int,
    kv_heads: int,
    width: int,
    n: int,
    number: int = 2,
    *,
    hops: int = -1,  # a rank sends n + hops shares
    values: int = 2,  # keys and values
    home: int = 2,  # queries on the way there, and outputs on the way back
    repeats: bool = True,
    divided: int = 1,
) -> int:
    """Return the bytes that a rank sends; each keyword can add a mistake to the formula."""
    share = tokens // n * width * number
    if way == "heads":
        kv = max(kv_heads, n) if repeats else kv_heads
        return (n + hops) * share * (home * heads + values * kv) // n
    return (n + hops) * share * values * kv_heads // divided


def _all_hops(*question: int) -> int:
    return right(*question, hops=0)  # type: ignore[arg-type]


def _no_values(*question: int) -> int:
    return right(*question, values=1)  # type: ignore[arg-type]


def _no_way_home(*question: int) -> int:
    return right(*question, home=1)  # type: ignore[arg-type]


def _whole(way: str, tokens: int, *rest: int) -> int:
    return right(way, tokens * rest[3], *rest)


def _query_heads(way: str, tokens: int, heads: int, kv_heads: int, *rest: int) -> int:
    return right(way, tokens, heads, kv_heads if way == "heads" else heads, *rest)


def _not_repeated(*question: int) -> int:
    return right(*question, repeats=False)  # type: ignore[arg-type]


def _part_of_a_part(way: str, *rest: int) -> int:
    return right(way, *rest, divided=1 if way == "heads" else rest[4])


def _both_ways(*question: int) -> int:
    return 2 * right(*question)  # type: ignore[arg-type]


def _fixed_number(*question: int) -> int:
    return right(*question[:6])  # type: ignore[arg-type]


def _numbers(*question: int) -> int:
    return right(*question[:6], 1)  # type: ignore[arg-type,call-arg]


def _undivided_heads(way: str, tokens: int, heads: int, kv: int, *rest: int) -> int:
    times = rest[1] if way == "heads" else 1
    return times * right(way, tokens, heads, kv, *rest)


# fmt: off
MISTAKES = (
    Mistake("own share", _all_hops,
            "A rank keeps its own share: of n ranks, each sends n - 1 shares, or n - 1 parts."),
    Mistake("no values", _no_values,
            "Values travel as well as keys."),
    Mistake("no way home", _no_way_home,
            "By heads, queries travel to their heads, and the outputs have to come home: both "
            "have the size of the queries."),
    Mistake("whole sequence", _whole,
            "A rank has a share of the tokens: tokens // n, not all of them."),
    Mistake("query heads", _query_heads,
            "In a ring or a gather, only keys and values travel, and these have `kv_heads` heads."),
    Mistake("not repeated", _not_repeated,
            "With fewer key heads than ranks, each rank still needs one: the key heads are "
            "repeated until there are n."),
    Mistake("a part of a part", _part_of_a_part,
            "In a gather or a ring a rank sends a whole share n - 1 times, not a part of a share."),
    Mistake("both directions", _both_ways,
            "Bytes that a rank receives are the bytes sent by another rank: count the sent ones."),
    Mistake("number ignored", _fixed_number,
            "`number` is the bytes of one number: 2 for bfloat16, 4 for float32."),
    Mistake("numbers, not bytes", _numbers,
            "Those are numbers. Each has `number` bytes."),
    Mistake("heads not divided", _undivided_heads,
            "By heads, a rank sends one n-th of its own tensor to each other rank, not the whole "
            "tensor."),
)
# fmt: on
OTHER = (
    "A share has tokens // n · width · number bytes for each head. In a gather or a ring n - 1 "
    "shares of keys and of values leave a rank. By heads it is (n - 1)/n of the rank's queries, "
    "outputs, keys and values."
)


def drawn(rng: random.Random) -> Question:
    """Draw a question; each of its arguments changes the right answer."""
    n = rng.choice((3, 4, 5, 8))
    kv_heads = rng.choice((1, n, 2 * n))
    heads = n * kv_heads * rng.choice((2, 3))
    tokens, width = n * rng.randrange(200, 4000), 8 * rng.randrange(2, 20)
    return rng.choice(WAYS), tokens, heads, kv_heads, width, n, rng.choice((1, 4, 8))


def of_way(way: str) -> Callable[[random.Random], Question]:
    """Return a function that draws a question about the method `way`."""
    return lambda rng: (way, *drawn(rng)[1:])


def few_key_heads(rng: random.Random) -> Question:
    """Draw a question about exchanging heads, with fewer key heads than ranks.

    The argument `number` is left out.
    """
    n = rng.choice((6, 12))
    kv_heads = rng.choice((2, 3))
    tokens, width = n * rng.randrange(200, 4000), 8 * rng.randrange(2, 20)
    return "heads", tokens, n * kv_heads * rng.choice((1, 2)), kv_heads, width, n
