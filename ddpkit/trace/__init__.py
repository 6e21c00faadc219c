"""What happened in a run, as data. Needs nothing but the standard library.

Span        one operation of one rank, from a time to a time
Trace       the spans of all ranks, and the facts of the run; save, load, step, to_chrome
Breakdown   where a rank's time went: compute only + overlapped + exposed + idle
Traffic     who sent how much to whom
match_peers fills in since when every peer of an operation was in
LeftOut     what a rank of a long run did not keep; join makes the trace of what all have kept
rounds      how many rounds its messages take
intervals   exact arithmetic on sets of time

Files: `file` is our own format, `kineto` torch.profiler's and `profiled` what it means, `sources`
tells the two apart, and `chrome` writes for Perfetto and HolisticTraceAnalysis.
"""

from ddpkit.trace import intervals
from ddpkit.trace.breakdown import Activity, Breakdown
from ddpkit.trace.left_out import LeftOut, join
from ddpkit.trace.peers import collectives, match_peers, messages
from ddpkit.trace.rounds import rounds
from ddpkit.trace.span import COMPUTE_KINDS, Scalar, Span
from ddpkit.trace.trace import Trace
from ddpkit.trace.traffic import Count, Traffic, count, size

__all__ = [
    "COMPUTE_KINDS",
    "Activity",
    "Breakdown",
    "Count",
    "LeftOut",
    "Scalar",
    "Span",
    "Trace",
    "Traffic",
    "collectives",
    "count",
    "intervals",
    "join",
    "match_peers",
    "messages",
    "rounds",
    "size",
]
