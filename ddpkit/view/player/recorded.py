"""`playback_of_trace`: the messages that real ranks sent, grouped into rounds. Pure.

The log of a run does not tell the chunk in a message, nor the sum to which a receiver adds the
chunk. So the picture shows messages and bytes only, and the numbers in short messages.
"""

from bisect import bisect_right
from collections.abc import Sequence

from ddpkit.errors import TraceError
from ddpkit.text import count, size
from ddpkit.trace import Span, Trace, how_made, messages
from ddpkit.view.player.model import Message, Moment, Playback, after, check_ranks

MOST_CHARACTERS = 12  # longest text on an arrow


def playback_of_trace(trace: Trace) -> Playback:
    """Return the steps of a run's send/recv log, a step for each round.

    Raises TraceError if the run sent no message, ValueError for more than 16 ranks.
    """
    check_ranks(trace.world_size)
    pairs = messages(trace.spans)
    if not pairs:
        used = ", ".join(sorted({span.name for span in trace.spans if span.is_collective}))
        raise TraceError(
            "there is no message to play: in this run no rank received a message by send and recv"
            + (
                f". A run does not record the messages of {used}: play a simulated schedule instead"
                if used
                else ""
            )
        )
    moment = Moment((), (0,) * trace.world_size, 0)
    moments = [moment]
    for together in rounds(pairs):
        sent = [
            Message(
                send.rank, receive.rank, send.bytes, holds=shortened(send.args.get("holds", ""))
            )
            for send, receive in together
        ]
        moments.append(moment := after(moment, sent))
    title = f"{count(moment.messages_sent, 'message')} of a run on {trace.world_size} ranks"
    if made := how_made(trace.facts):
        title += f" ({made})"
    return Playback(title, _notice(moment, len(moments) - 1), tuple(moments), 0, "round")


def shortened(numbers: object) -> str:
    """Return the numbers of a message, shortened to fit on an arrow: "3", "1 … 4"."""
    text = str(numbers)
    if len(text) <= MOST_CHARACTERS or "," not in text:
        return text
    first, *_, last = text.split(", ")
    return f"{first} … {last}"


def rounds(pairs: Sequence[tuple[Span, Span]]) -> list[list[tuple[Span, Span]]]:
    """Return (send, recv) pairs in rounds: no message depends on another message of its round.

    A message may depend on all sends and receives that its sender has finished before. So the
    message's round is one more than the latest round of these operations.
    """
    # rank -> (over_ns of a send or recv, round of this operation)
    ended: dict[int, list[tuple[int, int]]] = {}
    highest: dict[int, list[int]] = {}  # rank -> the highest round up to each operation of `ended`
    grouped: list[list[tuple[Span, Span]]] = []
    for send, receive in sorted(pairs, key=lambda pair: pair[0].start_ns):
        before = bisect_right(ended.get(send.rank, []), (send.start_ns, len(pairs)))
        number = highest[send.rank][before - 1] + 1 if before else 0
        grouped += [[] for _ in range(number + 1 - len(grouped))]
        grouped[number].append((send, receive))
        for span in (send, receive):
            _note(ended.setdefault(span.rank, []), highest.setdefault(span.rank, []), span, number)
    return grouped


def _note(ended: list[tuple[int, int]], highest: list[int], span: Span, number: int) -> None:
    """Insert an operation's end and round into both lists, which stay in the order of time."""
    at = bisect_right(ended, (span.over_ns, number))
    ended.insert(at, (span.over_ns, number))
    highest.insert(at, max(number, highest[at - 1] if at else 0))
    for later in range(at + 1, len(highest)):
        if highest[later] >= number:
            break
        highest[later] = number


def _notice(last: Moment, rounds: int) -> str:
    busiest = max(range(len(last.sent)), key=lambda rank: last.sent[rank])
    share = last.sent[busiest] / sum(last.sent) if sum(last.sent) else 0.0
    in_all = f"{size(sum(last.sent))} in {count(rounds, 'round')}"
    if len(set(last.sent)) == 1:
        return f"Notice: {in_all}, and every rank sent the same, {size(last.sent[0])}."
    return (
        f"Notice: {in_all}, and rank {busiest} sent {share:.0%} of it, {size(last.sent[busiest])}."
    )
