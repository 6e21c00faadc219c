"""`Trace`: the spans of every rank in a run, the source of all pictures, checks and reports.

`files` reads and writes a `BaseTrace`. `Trace` is a BaseTrace with methods such as `save` that call
`files`. So users find these methods on the trace, and imports go one way, from `trace` to `files`
to `base`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ddpkit.trace.base import BaseTrace
from ddpkit.trace.files import chakra, chrome, own, sources


@dataclass(frozen=True, repr=False)
class Trace(BaseTrace):
    """The spans of a run's ranks, and facts of the run.

    ``facts`` has facts of the run by name. Pictures use these facts: "backend", "device", and
    "emulated", a description of the emulated links or "". A run in emulated time adds "time", which
    is "emulated"; "machine", the modelled machines, if compute is counted; "speed", the speed of
    each rank, if a speed is not 1; and "order", if the order of events may differ from that of
    emulated time. A run on several hosts adds "hosts", the number of hosts, and "clock_error_ns",
    the largest possible error of a time. A long run adds "kept", the part of it that this trace
    holds: "the last 812 of 5,000 steps". A run for which torchrun had too few ranks adds "skipped",
    the reason; a run after torchrun's restart of its job adds "restart": "1 of 2". A rank that died
    adds "death of rank 2", the time of the death in ns of the trace.

    ``bounds`` has a rank's own window, (start, end) in ns; `step` uses bounds to restrict a trace.
    Without bounds the window is common to all ranks, from the first start to the last end, so
    pictures show the idle time of a rank that is done early.

    ``memory`` has the bytes that each rank of a modelled machine held, from moment to moment, by
    purpose (`MEMORY_KINDS`); `peak` returns the highest level.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a JSON file, gzipped if its name ends in ".gz"."""
        own.write(path, self)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> "Trace":
        """Read a file made by `save`, or the files of torch.profiler, one per rank of a run.

        A folder stands for its files that end in ".json" or ".json.gz". The content of a file shows
        which kind it is. If files of some ranks are missing, those ranks have empty windows. Raises
        TraceError, in one sentence, for other files.
        """
        found = sources.read(paths)
        return cls(found.spans, found.world_size, found.facts, found.bounds, found.memory)

    def to_chrome(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write Chrome JSON: one file of all ranks for Perfetto, or a folder with a file per rank.

        If ``path`` ends in ".json" or ".json.gz", the file has all spans, for Perfetto. Any other
        path is a folder for HolisticTraceAnalysis: its files also have compute and communication as
        kernels, so that HolisticTraceAnalysis computes the numbers of `breakdown`.

        Times are rounded to 1 us. Ranks with an empty window are left out. Returns the paths of the
        written files. Raises TraceError if a file cannot be written, or if the folder already holds
        other traces, because HolisticTraceAnalysis would take these for ranks.
        """
        return chrome.write(self, Path(path))

    def to_chakra(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write Chakra execution traces: "run.et" becomes run.0.et, run.1.et and so on.

        A file holds the compute and the communication of a rank, their order, and their recorded
        times in whole microseconds. Another file, run.groups.json, has the ranks of each process
        group. Ranks with an empty window are left out. Returns the files that were written.

        Raises TraceError for a collective unknown to Chakra, for a message with an unknown peer,
        for files that cannot be written, and if the package protobuf is not installed.
        """
        return chakra.write(self, Path(path))
