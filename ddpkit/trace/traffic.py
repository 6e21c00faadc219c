"""`Traffic`: bytes and messages by sender and receiver."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ddpkit.text import count, rank_list, size
from ddpkit.trace.span import Span

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Count:
    """A number of operations, and the sum of their bytes."""

    times: int = 0
    bytes: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.times + other.times, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, repr=False)
class Traffic:
    """Messages (send, isend) per pair of ranks, and collectives per rank and operation.

    A message counts once, for its sender. Messages inside a collective depend on the backend, so a
    collective counts once for each rank, with the bytes of the rank's input.
    """

    world_size: int
    p2p: Mapping[tuple[int, int], Count]  # (sender, receiver) -> count
    collective: Mapping[tuple[int, str], Count]  # (rank, operation) -> count
    recorded: Sequence[int] | None = None  # ranks with known operations; None: all ranks

    @classmethod
    def of(
        cls, spans: Iterable[Span], world_size: int, recorded: Sequence[int] | None = None
    ) -> "Traffic":
        """Return the traffic of these spans; spans without communication do not count.

        recorded  ranks that were recorded; None: all ranks
        """
        p2p: dict[tuple[int, int], list[int]] = defaultdict(list)
        collective: dict[tuple[int, str], list[int]] = defaultdict(list)
        for span in spans:
            if span.is_send and span.peer is not None:
                p2p[span.rank, span.peer].append(span.bytes)
            elif span.is_collective:
                collective[span.rank, span.name].append(span.bytes)
        known = None if recorded is None or len(recorded) == world_size else tuple(recorded)
        return cls(world_size, _counts(p2p), _counts(collective), known)

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            max(self.world_size, other.world_size),
            _sums(self.p2p, other.p2p),
            _sums(self.collective, other.collective),
            self.recorded,
        )

    def messages(self, rank: int | None = None) -> int:
        """Return the number of messages sent by the rank, or by all ranks if `rank` is None."""
        return self._sum(rank).times

    def sent(self, rank: int | None = None) -> int:
        """Return the bytes in messages sent by the rank, or by all ranks if `rank` is None."""
        return self._sum(rank).bytes

    def received(self, rank: int) -> int:
        """Return the bytes that were sent to the rank in messages."""
        return sum(count.bytes for (_, to), count in self.p2p.items() if to == rank)

    def to(self, rank: int, peer: int) -> int:
        """Return the bytes that ``rank`` sent to ``peer`` in messages."""
        return self.p2p.get((rank, peer), Count()).bytes

    def peers(self, rank: int) -> dict[int, Count]:
        """Return the counts of the rank's messages, per destination."""
        return {to: self.p2p[source, to] for source, to in sorted(self.p2p) if source == rank}

    def collectives(self, rank: int) -> dict[str, Count]:
        """Return the counts of the collectives in which the rank took part, per operation."""
        keys = sorted(key for key in self.collective if key[0] == rank)
        return {name: self.collective[who, name] for who, name in keys}

    def table(self, only: Sequence[int] = ()) -> str:
        """Return a table as text: messages, bytes, receivers and collectives, one line per rank.

        If all ranks have equal traffic, as in a collective, the table has one line for all ranks.
        Ranks that were not recorded have no line.

        only  if the ranks differ, the ranks that get a line; empty: all ranks
        """
        ranks = range(self.world_size) if self.recorded is None else self.recorded
        lines = [self._line(rank) for rank in ranks]
        if len(lines) > 1 and len(set(lines)) == 1:
            every = "every rank" if self.recorded is None else "every recorded rank"
            return f"{every}: {lines[0]}"
        said = zip(ranks, lines, strict=True)
        return "\n".join(f"rank {r}: {line}" for r, line in said if not only or r in only)

    def __repr__(self) -> str:
        parts = [f"{count(self.messages(), 'message')}, {size(self.sent())}"] if self.p2p else []
        names = sorted({name for _, name in self.collective})
        parts += [f"{name} ×{max(self._times(name))} per rank" for name in names]
        ranks = count(self.world_size, "rank")
        if self.recorded is not None:
            ranks = f"{rank_list(self.recorded)} of {ranks}"
        return f"<Traffic of {ranks}: {'; '.join(parts) or 'none'}>"

    def _sum(self, rank: int | None) -> Count:
        chosen = (n for (source, _), n in self.p2p.items() if rank is None or source == rank)
        return sum(chosen, Count())

    def _times(self, name: str) -> list[int]:
        return [count.times for (_, other), count in self.collective.items() if other == name]

    def _line(self, rank: int) -> str:
        parts = []
        if peers := self.peers(rank):
            whom = ", ".join(f"{size(n.bytes)} to rank {peer}" for peer, n in peers.items())
            parts.append(f"sent {count(self.messages(rank), 'message')}, {whom}")
        # a barrier has no bytes, and some tools record none
        for op, n in self.collectives(rank).items():
            parts.append(f"{op} ×{n.times}" + (f", {size(n.bytes)}" if n.bytes else ""))
        return "; ".join(parts) or "sent nothing"


def _counts(sizes: Mapping[_Key, list[int]]) -> dict[_Key, Count]:
    return {key: Count(len(each), sum(each)) for key, each in sizes.items()}


def _sums(one: Mapping[_Key, Count], other: Mapping[_Key, Count]) -> dict[_Key, Count]:
    return {key: one.get(key, Count()) + other.get(key, Count()) for key in {**one, **other}}
