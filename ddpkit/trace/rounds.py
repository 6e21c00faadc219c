"""How many messages of an algorithm go one after the other, told from the order of a run's events.

`rounds` and `latencies` walk through one order of events, and count by two models: with one port a
rank sends one message at a time; with many, only what it waits for holds it up. A plan's own number
of rounds (`ddpkit.simulate.Schedule.rounds`) needs no walk: its steps say which round they are in.
"""

from collections import defaultdict
from collections.abc import Iterable

from ddpkit.trace.peers import messages
from ddpkit.trace.span import Span


def rounds(spans: Iterable[Span]) -> int:
    """Rounds in the one-port model: in a round a rank sends one message and receives one.

    A message goes in the first round in which its sender has nothing else to send, its receiver
    nothing else to take in, and the sender has got all that it waited for before it sent. Times do
    not matter, only what came before what on each rank, so a slow run has as many rounds as a fast
    one. A binomial tree over n ranks takes ⌈log2 n⌉, a root that serves them in turn n-1, a ring
    all-reduce 2(n-1); a rank that blocks in a send before it receives takes more. Empty messages
    count too.

    Source: the model is that of R. Thakur, R. Rabenseifner, W. Gropp (IJHPCA 19, 2005), section 3.
    """
    pairs = messages(spans)
    sent_in: dict[int, int] = {}  # message -> its round
    out: dict[int, int] = defaultdict(int)  # rank -> the last round in which it sent
    taken: dict[int, int] = defaultdict(int)  # ... in which it received
    known: dict[int, int] = defaultdict(int)  # ... from which it has got what it waited for
    for number, is_posted in _in_order(pairs):
        send, recv = pairs[number]
        if is_posted:
            out[send.rank] = sent_in[number] = 1 + max(out[send.rank], known[send.rank])
        else:
            got_in = max(sent_in[number], 1 + taken[recv.rank])
            taken[recv.rank] = got_in
            known[recv.rank] = max(known[recv.rank], got_in)
    return max([0, *out.values(), *taken.values()])


def latencies(spans: Iterable[Span]) -> int:
    """The most messages in a row, each posted when its sender had got the one before it.

    So many latencies lie between an algorithm's start and its end, if a rank can send to several
    at once. A ring all-reduce over n ranks has 2(n-1); a root that serves n-1 ranks in turn has 1.
    """
    pairs = messages(spans)
    row: dict[int, int] = {}  # message -> how many in a row up to it
    known: dict[int, int] = defaultdict(int)  # rank -> the most of those that it has got
    for number, is_posted in _in_order(pairs):
        send, recv = pairs[number]
        if is_posted:
            row[number] = known[send.rank] + 1
        else:
            known[recv.rank] = max(known[recv.rank], row[number])
    return max(row.values(), default=0)


def _in_order(pairs: list[tuple[Span, Span]]) -> list[tuple[int, bool]]:
    """What happened on the ranks: which pair, and whether it was posted then or had come in.

    At equal times a message that has come in goes before one that is posted; but no message comes
    in before it is posted itself.
    """
    events = [(_posted(send), 1, number) for number, (send, _) in enumerate(pairs)]
    for number, (send, recv) in enumerate(pairs):
        late = recv.over_ns > _posted(send)
        events.append((recv.over_ns, 0, number) if late else (_posted(send), 2, number))
    return [(number, kind == 1) for _, kind, number in sorted(events)]


def _posted(send: Span) -> int:
    """The moment of a message: in a thread of its own, that since which it could be posted.

    Which of two threads comes first, the scheduler says, not the algorithm.
    """
    return int(send.args.get("since", send.start_ns))
