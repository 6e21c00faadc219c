"""`attention_picture`: the tiles of a sequence's attention, and the pairs of each rank. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ddpkit.text import count

MOST_STRETCHES, MOST_RANKS = 128, 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive positions that lie in one part of one rank's share of the sequence."""

    rank: int
    part: int
    start: int
    end: int  # the last position + 1


@dataclass(frozen=True, slots=True)
class Tile:
    """The scores of one stretch of queries with one stretch of keys, computed by one rank."""

    queries: Stretch
    keys: Stretch
    masked: bool  # True if some query of the tile does not see some key

    @property
    def rank(self) -> int:
        """The rank that holds the tile's queries and computes the tile."""
        return self.queries.rank


@dataclass(frozen=True, slots=True)
class AttentionPicture:
    """The tiles of a sequence's attention, and the pairs of each rank.

    A pair is a query and a key that the query sees. Tiles without a pair are left out.
    """

    length: int
    causal: bool
    tiles: tuple[Tile, ...]
    pairs: tuple[int, ...]  # pairs of a query and a key that the query sees, a number for each rank
    computed: tuple[int, ...]  # scores of all tiles, with masked scores, a number for each rank

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.pairs)

    @property
    def title(self) -> str:
        """The title: the number of tokens, the number of ranks, and the mask."""
        sees = "a token sees itself and all before it" if self.causal else "all tokens see all"
        return f"Attention of {self.length:,} tokens on {count(self.ranks, 'rank')}: {sees}"

    @property
    def finding(self) -> str:
        """A sentence on the rank with the most pairs and the rank with the fewest."""
        total, most, least = sum(self.pairs), max(self.pairs), min(self.pairs)
        of = f"of {total:,} pairs of a query and a key that it sees"
        if most == least:
            return f"Each rank has {most:,} {of}."
        times = f"{most / least:.1f} times as many as" if least else "and none are on"
        first, last = self.pairs.index(least), self.pairs.index(most)
        return f"Rank {last} has {most:,} {of}, {times} rank {first}."

    @property
    def text(self) -> str:
        """The picture in words and numbers."""
        whole = self.length**2
        share = sum(self.computed) / whole
        said = f"Tiles that hold a pair have {share:.0%} of all {whole:,} scores."
        rows = (f"rank {rank}: {pairs:,} pairs" for rank, pairs in enumerate(self.pairs))
        return "\n".join([self.finding, said, "; ".join(rows) + "."])


def attention_picture(
    places: Sequence[Iterable[int]], *, causal: bool = True, tiles: int = 2
) -> AttentionPicture:
    """Return the picture of a sequence; ``places[r]`` has the positions of rank r's tokens.

    Each rank's share is cut into `tiles` parts, as by `tensor_split`. Raises ValueError if a
    position is on no rank or on two ranks, and for more ranks or stretches of consecutive positions
    than can be drawn.
    """
    shares = [[int(at) for at in each] for each in places]
    length = sum(map(len, shares))
    _all_once(shares, length)
    if tiles < 1:
        raise ValueError(f"tiles={tiles}: a share is cut into 1 part or more")
    parts = {
        (rank, number): part
        for rank, share in enumerate(shares)
        for number, part in enumerate(_split(share, tiles))
        if part
    }
    found = [
        Stretch(rank, number, start, end)
        for (rank, number), part in parts.items()
        for start, end in _stretches(part)
    ]
    if len(found) > MOST_STRETCHES or len(shares) > MOST_RANKS:
        raise ValueError(
            f"{count(len(found), 'stretch')} of positions on {count(len(shares), 'rank')} cannot "
            f"be drawn: a picture has room for at most {MOST_STRETCHES} stretches and "
            f"{MOST_RANKS} ranks"
        )
    found.sort(key=lambda stretch: stretch.start)
    drawn, computed = [], [0] * len(shares)
    for queries in found:
        for keys in found:
            mine, theirs = parts[queries.rank, queries.part], parts[keys.rank, keys.part]
            if causal and min(theirs) > max(mine):
                continue  # no query of the part sees a key of the other part
            drawn.append(Tile(queries, keys, causal and max(theirs) > min(mine)))
            size = (queries.end - queries.start) * (keys.end - keys.start)
            computed[queries.rank] += size
    pairs = [sum(at + 1 for at in each) if causal else len(each) * length for each in shares]
    return AttentionPicture(length, causal, tuple(drawn), tuple(pairs), tuple(computed))


def _all_once(shares: Sequence[Sequence[int]], length: int) -> None:
    if not length:
        raise ValueError("show_attention needs a rank with a token")
    owner: dict[int, int] = {}
    for rank, share in enumerate(shares):
        for at in share:
            if at in owner:
                raise ValueError(
                    f"position {at} is on ranks {owner[at]} and {rank}: give it to one of them"
                )
            owner[at] = rank
    gone = next((at for at in range(length) if at not in owner), None)
    if gone is not None:
        raise ValueError(
            f"position {gone} is on no rank: the ranks together must have the positions "
            f"0 to {length - 1}"
        )


def _split(share: Sequence[int], parts: int) -> list[Sequence[int]]:
    small, larger = divmod(len(share), parts)
    ends = [small * number + min(number, larger) for number in range(parts + 1)]
    return [share[start:end] for start, end in pairwise(ends)]


def _stretches(part: Sequence[int]) -> list[tuple[int, int]]:
    """Return the start and the end of each stretch of consecutive positions."""
    found: list[tuple[int, int]] = []
    for at in sorted(part):
        if found and found[-1][1] == at:
            found[-1] = found[-1][0], at + 1
        else:
            found.append((at, at + 1))
    return found
