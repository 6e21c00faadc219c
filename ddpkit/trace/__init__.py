"""The events of a run, as data.

The package needs only the standard library.

span        Span: one operation of one rank, with its start and end
base        BaseTrace: the spans of all ranks, the facts of the run, and functions that analyse them
trace       Trace: a BaseTrace with save, load and to_chrome
cycles      the ends of steps, derived from the order in which a rank's optimizers step
breakdown   Breakdown: the parts of a rank's time: compute only, overlapped, exposed, copy, idle
copies      CopyTotal: the copies between host and device, by direction
queues      the rows of a rank with a device in a picture: host, streams, communicators, engines
traffic     Traffic, Count: bytes and messages by sender and receiver
peers       match_peers: sets in each span the moment at which the last peer posted the operation
waits       the waits of ranks for each other, and their lengths
rounds      the numbers of rounds and of latencies in the messages of an algorithm
dropped     Dropped: counts of the spans that a rank did not keep; join: the trace of the kept spans
intervals   exact arithmetic on sets of time intervals
innermost   the innermost span at each moment, for spans that lie inside each other
work        WorkDone: a rank's FLOPs in a step, the share of the peak, and the stated amounts
memory      MemoryLevel: memory held by a rank of a modelled machine, by purpose
deaths      deaths of ranks, with their times
names       names of ranks: "server" rather than "rank 0"
made        the origin of a trace's times: simulated, emulated, or measured
files/      traces on disk: ddpkit's own format, Perfetto's and torch.profiler's
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
