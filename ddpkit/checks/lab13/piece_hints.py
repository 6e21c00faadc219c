"""Lab 13: hints about wrong pieces of the old shards that new ranks read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpkit.exercises.hint import Hint, Seen


def shards(s: Seen, cut: Any) -> list[list[tuple[int, int, int]]]:
    """Return the pieces that new ranks read if `cut(length, n)` gives the sizes of the shards."""
    ends = _ends(cut(s.length, s.old)), _ends(cut(s.length, s.new))
    return [
        [
            (k, max(a, c) - c, min(b, d) - c)
            for k, (c, d) in enumerate(ends[0])
            if max(a, c) < min(b, d)
        ]
        for a, b in ends[1]
    ]


def _ends(sizes: Sequence[int]) -> list[tuple[int, int]]:
    return [(sum(sizes[:k]), sum(sizes[: k + 1])) for k in range(len(sizes))]


def evenly(length: int, n: int) -> list[int]:
    """Return sizes of shards that differ by at most one, like tensor_split's chunks."""
    return [length // n + (k < length % n) for k in range(n)]


def down(length: int, n: int) -> list[int]:
    """Return sizes of shards rounded down; the last shard takes the remainder."""
    return [*([length // n] * (n - 1)), length - length // n * (n - 1)]


def flat(reads: Any) -> list[tuple[int, int, int]]:
    """Return the pieces of all ranks in one list."""
    return [each for mine in reads for each in mine]


def within(s: Seen) -> bool:
    """True if all elements that the answer reads lie within the old shards."""
    wide = -(-s.length // s.old)
    return all(stop <= min(wide, s.length - k * wide) for k, _, stop in flat(s.reads))


def lacks_between(s: Seen) -> bool:
    """True if ranks read their first and last piece, but not all pieces between these two."""
    pairs = list(zip(s.reads, s.expect["reads"], strict=True))
    ends = all(mine[:1] == want[:1] and mine[-1:] == want[-1:] for mine, want in pairs)
    return ends and any(len(mine) < len(want) for mine, want in pairs)


def past_the_end(s: Seen) -> bool:
    """True if all pieces begin within a shard, but some piece ends after the last element."""
    wide, read = -(-s.length // s.old), flat(s.reads)
    begins = all(0 <= start < wide for _, start, _ in read)
    return begins and any(k * wide + stop > s.length for k, _, stop in read)


def numbers(reads: Any) -> int:
    """Return the number of elements that the pieces have together."""
    return sum(stop - start for _, start, stop in flat(reads))


# fmt: off
PIECES = (
    Hint("no list", lambda s: isinstance(s.reads[0], str),
         lambda s: f"Return a list: a {s.reads[0]} is empty when it is read a second time."),
    Hint("even sizes", lambda s: s.reads == shards(s, evenly),
         "Your shards are as even as possible. torch's chunks are all as large as the first, until "
         "the numbers end: 10 numbers on 4 ranks are 3, 3, 3, 1."),
    Hint("rounded down", lambda s: s.reads == shards(s, down),
         "Your shards are rounded down, and the last shard takes the rest. torch's chunks are "
         "rounded up, and the last chunk has fewer numbers."),
    Hint("inclusive", lambda s: s.reads == [
         [(k, start, stop - 1) for k, start, stop in mine] for mine in s.expect["reads"]],
         "`stop` is the first number that is no longer read, as in a slice."),
    Hint("how many", lambda s: s.reads == [
         [(k, start, stop - start) for k, start, stop in mine] for mine in s.expect["reads"]],
         "`stop` is the end of the piece, not the count of its numbers."),
    Hint("empty ones", lambda s: any(start >= stop for _, start, stop in flat(s.reads)),
         "A piece is empty. Leave empty pieces out."),
    Hint("between", lacks_between,
         "A new rank may need more than two of the old shards. The pieces between the first and "
         "the last are missing."),
    Hint("some missing", lambda s: numbers(s.reads) < s.length,
         lambda s: f"{numbers(s.reads)} of {s.length} numbers are read. Which rank reads the last "
         "numbers?"),
    Hint("past the end", past_the_end,
         lambda s: f"The line has {s.length} numbers, but a piece ends after them. The last "
         "shards, old and new, have fewer numbers."),
    Hint("global", lambda s: not within(s),
         "A piece lies beyond the end of its old shard. Count from the beginning of this shard."),
    Hint("whole shards", lambda s: numbers(s.reads) > s.length,
         lambda s: f"{numbers(s.reads)} numbers are read for {s.length}. Read only those numbers "
         "of a shard that the new rank needs."),
    Hint("other", say="Draw both cuts of the line, one above the other. Where do the shards "
    "overlap?"),
)
# fmt: on
