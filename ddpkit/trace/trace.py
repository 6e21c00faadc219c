"""`Trace`: what every rank did in a run, from which all pictures, checks and reports are made.

`files` reads and writes a `BaseTrace`. `Trace` is one that knows `files` too: so a reader finds
`save` where the spans are, and the imports go one way, from trace to files to base.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ddpkit.trace.base import BaseTrace
from ddpkit.trace.files import chakra, chrome, own, sources


@dataclass(frozen=True, repr=False)
class Trace(BaseTrace):
    """The spans of a run's ranks, and facts of the run.

    Facts that the views know: "backend", "device", and "emulated", the links in words or "". A run
    in emulated time adds "time", which is "emulated", "machine", where compute is counted, and
    whose it is, "speed", of each rank, where one is not 1,
    and "order", where it is not certain that the order is that of emulated time. A run on several
    hosts adds "hosts", their number, and "clock_error_ns", how far a time may be off. A
    long run adds "kept", the part of it that this trace holds: "the last 812 of 5,000 steps". A run
    for which torchrun had too few ranks adds "skipped", the reason; one after torchrun's restart of
    its job "restart": "1 of 2". A rank that died adds "death of rank 2", when, in ns of the trace.

    ``bounds`` gives a rank a window of its own, (start, end) in ns: so `step` restricts a trace.
    Without it the window is common to all ranks, from the first start to the last end, so that a
    rank that is done early is seen to stand idle.

    ``memory`` has the bytes that each rank of a modelled machine held, from moment to moment, by
    what they were for (`MEMORY_KINDS`); `peak` tells the most.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a JSON file, gzipped if its name ends in ".gz"."""
        own.write(path, self)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> "Trace":
        """Read a file made by `save`, or those that torch.profiler made, one per rank of a run.

        A folder stands for the files in it that end in ".json" or ".json.gz".
        The content of a file says of which kind it is. If files of some ranks are missing, those
        ranks have empty windows. Raises TraceError, in one sentence, for anything else.
        """
        found = sources.read(paths)
        return cls(found.spans, found.world_size, found.facts, found.bounds, found.memory)

    def to_chrome(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write Chrome JSON: all ranks into a file for Perfetto, or a file per rank into a folder.

        A ``path`` that ends in ".json" or ".json.gz" is the file: all spans, to look at. Any other
        is a folder for HolisticTraceAnalysis: its files hold what counts as compute and as
        communication too, and HolisticTraceAnalysis comes to the numbers of `breakdown`.

        Times are rounded to 1 us. Ranks with an empty window are left out. Returns the files that
        were written. Raises TraceError for what cannot be written, and if the folder holds other
        traces already, which HolisticTraceAnalysis would take for ranks.
        """
        return chrome.write(self, Path(path))

    def to_chakra(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write Chakra execution traces: "run.et" becomes run.0.et, run.1.et and so on.

        A file holds the compute and the communication of a rank, and the order of both; with times
        in whole microseconds, as they were recorded. Another file, run.groups.json, has the ranks
        of each process group. Ranks with an empty window are left out. Returns the files that were
        written.

        Raises TraceError for a collective that Chakra does not have, for a message with an unknown
        peer, for files that cannot be written, and if the package protobuf is not installed.
        """
        return chakra.write(self, Path(path))
