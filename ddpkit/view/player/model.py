"""`Playback`: the data on each rank after each step of a collective, and the bytes sent. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from ddpkit.text import count, size

MOST_RANKS = 16  # more boxes would be too small to read
MOST_LINES = 64  # lines of the table


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a step, with the chunks [first, stop); ``chunks`` is None if not known."""

    source: int
    target: int
    bytes: int
    chunks: tuple[int, int] | None = None
    # True if the receiver adds the message to its own part; otherwise the message replaces it
    adds: bool = False
    holds: str = ""  # the numbers in the message, if chunks are not known


@dataclass(frozen=True, slots=True)
class Moment:
    """The messages of a step, and the state after the step."""

    messages: tuple[Message, ...]  # messages of this step; none in the moment before the first
    sent: tuple[int, ...]  # bytes sent by each rank so far
    messages_sent: int  # messages of all ranks so far
    # [rank][chunk]: number of contributions; () if not known
    holds: tuple[tuple[int, ...], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(message.bytes for message in self.messages)


@dataclass(frozen=True)
class Playback:
    """All moments of a collective. ``moments[0]`` is before the first step."""

    title: str
    notice: str  # one sentence for the reader to check in the picture
    moments: tuple[Moment, ...]
    full: int  # contributions of a complete chunk; 0 if chunks are not known
    unit: str = "step"  # the word for a moment: "step" or "round"

    @property
    def world_size(self) -> int:
        return len(self.moments[0].sent)

    @property
    def steps(self) -> int:
        return len(self.moments) - 1

    @property
    def chunks(self) -> int:
        """Return the number of chunks of the vector; 0 if not known."""
        return len(self.moments[0].holds[0]) if self.moments[0].holds else 0

    @property
    def is_ring(self) -> bool:
        """Return True if ranks send to their neighbours only: then the picture is a ring."""
        n = self.world_size
        hops = {(m.target - m.source) % n for moment in self.moments for m in moment.messages}
        return hops <= {1, n - 1} and n > 1

    def carried(self, message: Message) -> str:
        """Return the content of a message: "C", "A–D"; numbers or bytes if chunks are not known."""
        if message.chunks is None:
            return message.holds or size(message.bytes)
        first, stop = message.chunks
        if stop <= first:
            return ""
        if self.chunks == 1:
            return "vector"
        last = ascii_uppercase[stop - 1]
        return last if stop == first + 1 else f"{ascii_uppercase[first]}–{last}"

    def line(self, step: int) -> str:
        """Return a moment in words: the text alternative of the moment's picture."""
        moment = self.moments[step]
        if step == 0:
            return f"Before the first {self.unit}: nothing is sent yet."
        return (
            f"{self.unit.capitalize()} {step} of {self.steps}: {self.happens(moment)}. "
            f"Sent so far: {_per_rank(moment.sent)}, {count(moment.messages_sent, 'message')}."
        )

    def happens(self, moment: Moment) -> str:
        """Return a step's messages in words: "4 messages of 1 kB, which the receiver adds"."""
        sizes = sorted({message.bytes for message in moment.messages})
        of = size(sizes[0]) if len(sizes) == 1 else f"{size(sizes[0])} to {size(sizes[-1])}"
        said = f"{count(len(moment.messages), 'message')} of {of}"
        if not self.chunks:
            return said
        adds = {message.adds for message in moment.messages if message.bytes}
        if len(adds) != 1:
            return f"{said}, some added and some put in place"
        receiver = "the receiver adds" if adds == {True} else "the receiver puts in place"
        return f"{said}, which {receiver}"

    def table(self) -> str:
        """Return all steps as text, a line each.

        "0→1 +A" stands for a message with chunk A from rank 0 to rank 1, where the chunk is added.
        """
        rows = [[self.unit, "messages", "bytes", "sent per rank so far", "from → to, chunk"]]
        for step, moment in enumerate(self.moments[: MOST_LINES + 1]):
            if step:
                who = ", ".join(self._short(message) for message in moment.messages)
                numbers = str(len(moment.messages)), size(moment.bytes), _per_rank(moment.sent)
                rows.append([str(step), *numbers, who])
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join([*(cell.rjust(w) for cell, w in zip(row[:4], widths, strict=True)), row[4]])
            for row in rows
        ]
        if self.steps > MOST_LINES:
            lines.append(f"… and {self.steps - MOST_LINES} more")
        return "\n".join(lines)

    def _short(self, message: Message) -> str:
        what = self.carried(message) if message.chunks or message.holds else ""
        sign = "+" if message.adds else ""
        return f"{message.source}→{message.target} {sign}{what}".strip()


def after(
    previous: Moment, messages: Sequence[Message], holds: tuple[tuple[int, ...], ...] = ()
) -> Moment:
    """Return the moment that follows ``previous`` after a step with these messages."""
    sent = list(previous.sent)
    for message in messages:
        sent[message.source] += message.bytes
    many = previous.messages_sent + len(messages)
    return Moment(tuple(messages), tuple(sent), many, holds)


def check_ranks(world_size: int) -> None:
    """Raise ValueError for more ranks than a picture has room for."""
    if not 1 <= world_size <= MOST_RANKS:
        raise ValueError(f"play shows 1 to {MOST_RANKS} ranks, not {world_size}")


def _per_rank(sent: Sequence[int]) -> str:
    low, high = min(sent), max(sent)
    if low == high:
        return f"{size(low)} by {'every rank' if len(sent) > 1 else 'the rank'}"
    return f"{size(low)} to {size(high)} by a rank"
