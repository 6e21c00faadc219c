"""What happened in a run, as data. Needs nothing but the standard library.

span        Span: one operation of one rank, from a time to a time
base        the spans of all ranks, the facts of the run, and what can be asked of them
trace       Trace: these, with save, load and to_chrome
cycles      the ends of steps, told from the cycle of a rank's optimizers
breakdown   Breakdown: where a rank's time went: compute only, overlapped, exposed, copy, idle
copies      CopyTotal: the copies between host and device, by direction
queues      the rows of a rank with a device: host, streams, communicators, copy engines
traffic     Traffic, Count: who sent how much to whom
peers       match_peers fills in since when every peer of an operation was in
waits       who waited for whom, and how long
rounds      how many rounds the messages of an algorithm take, and how many latencies
dropped     Dropped: what a rank of a long run did not keep; join: what all have kept
intervals   exact arithmetic on sets of time
innermost   the innermost of spans that lie inside each other
work        WorkDone: FLOPs, shares of the peak and stated amounts of a rank's step
memory      MemoryLevel: what a rank of a modelled machine held, and for what
deaths      deaths of ranks: when each died
names       names of ranks: "server" rather than "rank 0"
made        how a trace was made: simulated, emulated, or in a machine's own time
files/      traces on disk: our own format, Perfetto's and torch.profiler's
"""

from ddpkit.text import count, size
from ddpkit.trace import intervals
from ddpkit.trace.breakdown import Activity, Breakdown
from ddpkit.trace.deaths import UNENDED, death_fact, died_ns
from ddpkit.trace.dropped import Dropped, join
from ddpkit.trace.made import how_made
from ddpkit.trace.memory import MEMORY_KINDS, MemoryLevel
from ddpkit.trace.names import name_of, with_names
from ddpkit.trace.peers import collectives, match_peers, messages
from ddpkit.trace.rounds import latencies, rounds
from ddpkit.trace.span import (
    CHANGED,
    COMPUTE_KINDS,
    OPERATIONS,
    OPTIMIZER,
    UNWAITED,
    Scalar,
    Span,
)
from ddpkit.trace.trace import Trace
from ddpkit.trace.traffic import Count, Traffic

__all__ = [
    "CHANGED",
    "COMPUTE_KINDS",
    "MEMORY_KINDS",
    "OPERATIONS",
    "OPTIMIZER",
    "UNENDED",
    "UNWAITED",
    "Activity",
    "Breakdown",
    "Count",
    "Dropped",
    "MemoryLevel",
    "Scalar",
    "Span",
    "Trace",
    "Traffic",
    "collectives",
    "count",
    "death_fact",
    "died_ns",
    "how_made",
    "intervals",
    "join",
    "latencies",
    "match_peers",
    "messages",
    "name_of",
    "rounds",
    "size",
    "with_names",
]
