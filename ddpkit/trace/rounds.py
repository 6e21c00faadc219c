"""How many rounds the messages of an algorithm take, told from the order of a run's events."""

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
    # What happened on the ranks, in order: a receive is over, a send is posted. At one and the same
    # time the receive comes first, unless it is of that very message.
    events = [(send.start_ns, 1, number) for number, (send, _) in enumerate(pairs)]
    for number, (send, recv) in enumerate(pairs):
        late = recv.end_ns > send.start_ns
        events.append((recv.end_ns, 0, number) if late else (send.start_ns, 2, number))
    sent_in: dict[int, int] = {}  # message -> its round
    out: dict[int, int] = defaultdict(int)  # rank -> the last round in which it sent
    taken: dict[int, int] = defaultdict(int)  # ... in which it received
    known: dict[int, int] = defaultdict(int)  # ... from which it has got what it waited for
    for _, kind, number in sorted(events):
        send, recv = pairs[number]
        if kind == 1:
            out[send.rank] = sent_in[number] = 1 + max(out[send.rank], known[send.rank])
        else:
            got_in = max(sent_in[number], 1 + taken[recv.rank])
            taken[recv.rank] = got_in
            known[recv.rank] = max(known[recv.rank], got_in)
    return max([0, *out.values(), *taken.values()])
