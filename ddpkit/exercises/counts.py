"""Counts of what was sent, in words: of a right answer a check says nothing else."""

from __future__ import annotations

from ddpkit.exercises.compare import Difference

NOUNS = {  # name of a count -> one of it, several
    "bytes": ("byte", "bytes"),
    "messages": ("message", "messages"),
    "rounds": ("round", "rounds"),
    "latencies": ("latency", "latencies"),
}


def counted(name: str, value: object) -> str | None:
    """ "36 bytes from each rank", "6 rounds"; None for what is no count."""
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
    """The difference of an observed value from the expected one, which had this name.

    "rank 2 sent 96 bytes, expected 48", "x[0] got 1, expected 2".
    """
    rank = found.where.removeprefix("[").removesuffix("]")
    if name in NOUNS and rank.isdigit():
        return f"rank {rank} sent {found.got} {name}, expected {found.expected}"
    if name in NOUNS and not found.where:
        return f"{found.got} {name}, expected {found.expected}"
    return f"{name}{found.where} {found}"


def _count(n: int, name: str) -> str:
    one, several = NOUNS[name]
    return f"{n:,} {one if n == 1 else several}"
