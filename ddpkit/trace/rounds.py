"""The numbers of rounds and of latencies in a run's messages, counted from the order of events.

The two functions use two models. In the one-port model of `rounds`, a rank sends one message at a
time. In the many-port model of `latencies`, a rank sends any number of messages at once, and waits
only for messages to receive. A `Schedule` knows its number of rounds
(`ddpkit.simulate.Schedule.rounds`), because each of its steps names its round.
"""

from collections import defaultdict
from collections.abc import Iterable

from ddpkit.trace.peers import messages
from ddpkit.trace.span import Span


def rounds(spans: Iterable[Span]) -> int:
    """Return the rounds of the one-port model: a rank sends and receives one message in a round.

    A message belongs to the first round in which its sender has no earlier message left to send,
    its receiver has no earlier message left to receive, and the sender has got all messages for
    which it waited before this send. Times do not matter, only the order of events on each rank, so
    a slow run has as many rounds as a fast run. A binomial tree over n ranks takes ⌈log2 n⌉ rounds,
    a root that serves the ranks in turn takes n-1, and a ring all-reduce takes 2(n-1). A rank that
    blocks in a send before it receives takes more rounds. Empty messages count too.

    Source: the model is that of R. Thakur, R. Rabenseifner, W. Gropp (IJHPCA 19, 2005), section 3.
    """
    pairs = messages(spans)
    sent_in: dict[int, int] = {}  # message -> its round
    out: dict[int, int] = defaultdict(int)  # rank -> the last round in which it sent
    taken: dict[int, int] = defaultdict(int)  # rank -> the last round in which it received
    # rank -> the last round in which the rank got a message for which it waited
    known: dict[int, int] = defaultdict(int)
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
    """Return the length of the longest chain of messages.

    Each message of a chain is posted after its sender has received the previous message of the
    chain. The length is the number of latencies between an algorithm's start and its end, if a rank
    can send to several ranks at once. A ring all-reduce over n ranks has 2(n-1); a root that serves
    n-1 ranks in turn has 1.
    """
    pairs = messages(spans)
    row: dict[int, int] = {}  # message -> length of the longest chain up to it
    # rank -> the longest chain among the messages that it has got
    known: dict[int, int] = defaultdict(int)
    for number, is_posted in _in_order(pairs):
        send, recv = pairs[number]
        if is_posted:
            row[number] = known[send.rank] + 1
        else:
            known[recv.rank] = max(known[recv.rank], row[number])
    return max(row.values(), default=0)


def _in_order(pairs: list[tuple[Span, Span]]) -> list[tuple[int, bool]]:
    """Return the posts and arrivals of messages in order, as (number of the pair, is a post).

    At equal times, arrivals come before posts, except that no message arrives before its own post.
    """
    events = [(_posted(send), 1, number) for number, (send, _) in enumerate(pairs)]
    for number, (send, recv) in enumerate(pairs):
        late = recv.over_ns > _posted(send)
        events.append((recv.over_ns, 0, number) if late else (_posted(send), 2, number))
    return [(number, kind == 1) for _, kind, number in sorted(events)]


def _posted(send: Span) -> int:
    """Return the time at which a message was posted.

    A message from a thread of the user counts as posted at the earliest time at which the thread
    could have posted it, because the scheduler, not the algorithm, decides which of two threads
    comes first.
    """
    return int(send.args.get("since", send.start_ns))
