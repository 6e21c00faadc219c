"""Texts for counts of bytes and messages.

For a right answer, these counts are the only values that a check prints.
"""

from __future__ import annotations

from ddpkit.exercises.compare import Difference

NOUNS = {  # name of a count -> its noun, singular and plural
    "bytes": ("byte", "bytes"),
    "messages": ("message", "messages"),
    "rounds": ("round", "rounds"),
    "latencies": ("latency", "latencies"),
    "tensors": ("tensor", "tensors"),
}

# observed name -> sentence for its value False, because "kept got False" tells a student nothing
IN_WORDS = dict.fromkeys(("kept", "left alone"), "the answer has changed its input")


def counted(name: str, value: object) -> str | None:
    """Return the text of a count: "36 bytes from each rank"; None if `name` is not a count."""
    if name not in NOUNS:
        return None
    match value:
        case int():
            return _count(value, name)
        case [int() as first, *others] if all(each == first for each in others):
            return _count(first, name) + " from each rank" * bool(others)
        case [int(), *_]:
            return f"{name} by rank {', '.join(f'{each:,}' for each in value)}"
    return None


def differs(name: str, found: Difference) -> str:
    """Return a text about the difference between an observed value and the expected value.

    Examples: "rank 2 sent 96 bytes, expected 48", "x[0] got 1, expected 2". If a dict holds the
    counts, the key comes first: "with 2 ranks: 1 latency, expected 2".
    """
    if name in IN_WORDS and found.got == "False":
        return IN_WORDS[name]
    where = found.where.removeprefix("[").removesuffix("]")
    if name not in NOUNS or not found.got.lstrip("-")[:1].isdigit():
        return f"{name}{found.where} {found}"
    told = f"{found.got} {noun(name, found.got)}, expected {found.expected}"
    if where.isdigit():
        return f"rank {where} sent {told}"
    if not where:
        return told
    words = where.strip("'")
    return f"{words}: {told}" if where == repr(words) else f"{name}{found.where} {found}"


def noun(name: str, n: object) -> str:
    """Return the noun for a count of `n`: ``noun("latencies", 1) == "latency"``."""
    one, several = NOUNS[name]
    return one if str(n) == "1" else several


def _count(n: int, name: str) -> str:
    return f"{n:,} {noun(name, n)}"
