"""Export of a trace as Chrome JSON, for Perfetto and HolisticTraceAnalysis.

For Perfetto, which opens one file at a time, one file has all ranks. For HolisticTraceAnalysis
(HTA), a folder has one file per rank. A file for HTA has the rank's time twice, the second time as
GPU kernels, because HTA counts only these:

"compute", "comm", "copy", "step"
                            the spans as they were recorded, nested, with their names and facts
"host", "starved", "stream 1", ...
                            rows of a rank with a device (`trace.queues`)
"counted: ..."              events in the form of GPU kernels: the compute of `Activity`, in pieces
                            that do not overlap and leave out the time blocked in a wait;
                            communication, under the names of NCCL's kernels, which HTA knows; and
                            copies, under CUDA's names: HTA counts no "Memcpy" as compute

Reasons for the less obvious choices:
- The events come first in a file, because Perfetto of 2021 stops reading at anything that
  precedes the events. This Perfetto also misreads "displayTimeUnit" as the unit of the times, and
  shows times a thousand times too long, so the files leave out "displayTimeUnit".
- A kernel of length 0 stands at either end of the rank's window. HTA's total goes from the first
  kernel to the last, and so equals the window, including idle time at the start and the end.
- Times are whole microseconds, each end of a span rounded by itself, so that adjacent or nested
  spans stay adjacent or nested. HTA would round fractions, starts up and ends down, and lose time
  with every span.
- A slice of communication ends when the operation is done. The end of a later wait is among its
  facts ("collected_us", on the file's scale), and is no slice, because nothing moves meanwhile.
- Slices of one row must nest, or Perfetto drops them: an overlapping slice gets a row of its own.
- HTA takes a file's rank from the first text ``"rank": ``, with the space, so the first event has
  this text. HTA reads every .json and .gz of the folder.
- HTA does not count a kernel as compute if its name has "Sync", "Memcpy" or "Memset". It takes any
  event with "ProfilerStep" in its name for a step, and leaves out the last step. So these words
  are changed in the names of events (`_MISREAD`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddpkit.errors import TraceError
from ddpkit.trace.base import BaseTrace
from ddpkit.trace.copies import name_on_cuda
from ddpkit.trace.files import disk
from ddpkit.trace.innermost import innermost
from ddpkit.trace.intervals import Interval
from ddpkit.trace.made import how_made
from ddpkit.trace.memory import MEMORY_KINDS, inside
from ddpkit.trace.queues import HOST, STARVED, by_queue
from ddpkit.trace.span import LAUNCHED, Span

NOTE = (
    "Rows 'counted: ...' hold the times of the breakdown, dressed as GPU kernels so that "
    "HolisticTraceAnalysis counts the same times; all other rows hold the recorded spans."
)
_ALL_RANKS = "all_ranks"  # key in a file's object "ddpkit" that marks an export of all ranks
_ROWS = ("step", "compute", "comm", "copy")  # the rows and their order in the picture
_FIRST = ("step", HOST, STARVED, "compute")  # rows of a rank with a device; the others follow
_PLACES = 1_000_000  # row numbers reserved for each name, because a name may have several rows
_COUNTED = {"compute": 10, "comm": 11, "copy": 12}
_MISREAD = re.compile("Sync|Memcpy|Memset|ProfilerStep")

_Event = dict[str, Any]


def write(trace: BaseTrace, path: Path) -> list[Path]:
    """Write the Chrome JSON files for `Trace.to_chrome`, and return their paths."""
    ranks = [rank for rank in trace.ranks if trace.window_of(rank)[0] < trace.window_of(rank)[1]]
    if not ranks:
        return []
    if path.name.endswith((".json", ".json.gz")):
        if path.is_file() and not _was_exported(path):
            raise TraceError(
                f"{path} exists and is not an earlier export, so it was not overwritten: "
                "give another name"
            )
        disk.write(path, _all_ranks(trace, ranks))
        return [path]
    paths = {rank: path / f"rank{rank}.json" for rank in ranks}
    try:
        path.mkdir(parents=True, exist_ok=True)
        found = sorted(file for file in path.iterdir() if file.suffix in (".json", ".gz"))
    except OSError as error:
        raise TraceError(f"cannot write to the folder {path}: {error.strerror}") from error
    if others := [file.name for file in found if file not in paths.values()]:
        raise TraceError(
            f"{path} has other files ({', '.join(others[:3])}), which HolisticTraceAnalysis "
            "would read as ranks: give an empty folder"
        )
    for rank, file in paths.items():
        disk.write(file, _one_rank(trace, rank))
    return list(paths.values())


def has_all_ranks(top: Any) -> bool:
    """True if the content of a JSON file is an export of all ranks."""
    ours = top.get("ddpkit") if isinstance(top, dict) else None
    return isinstance(ours, dict) and _ALL_RANKS in ours


def _was_exported(path: Path) -> bool:
    try:
        return has_all_ranks(disk.read_json(path, lambda found: None if "ph" in found else found))
    except TraceError:
        return False


def _all_ranks(trace: BaseTrace, ranks: Sequence[int]) -> bytes:
    writers = [_Writer(trace, rank) for rank in ranks]
    events = (event for writer in writers for event in writer.shown())
    return _text(events, {"ddpkit": {_ALL_RANKS: list(ranks), "facts": dict(trace.facts)}})


def _one_rank(trace: BaseTrace, rank: int) -> bytes:
    facts = dict(trace.facts)
    writer = _Writer(trace, rank)
    rest = {
        "distributedInfo": {
            "backend": facts.get("backend", ""),
            "rank": rank,
            "world_size": trace.world_size,
        },
        "schemaVersion": 1,
        "baseTimeNanoseconds": _origin(trace),
        "ddpkit": {"facts": facts, "note": NOTE},
    }
    return _text(itertools.chain(writer.shown(), writer.counted()), rest)


def _text(events: Iterable[_Event], rest: dict[str, object]) -> bytes:
    """Return the file's JSON, with one event per line, so that a person can read and grep it."""
    lines = ",\n".join(json.dumps(event) for event in events)
    return f'{{"traceEvents": [\n{lines}\n],\n{json.dumps(rest)[1:]}\n'.encode()


def _origin(trace: BaseTrace) -> int:
    """Return the time in ns that is 0 in a file: the start of the trace or of an earlier launch."""
    launched = (span.start_ns for rank in trace.ranks for span in trace.row(rank, "host"))
    return min([trace.start_ns, *launched])


class _Writer:
    """Makes the Chrome events of one rank."""

    def __init__(self, trace: BaseTrace, rank: int) -> None:
        self.rank = rank
        self.spans = trace.of(rank)
        self.window = trace.window_of(rank)
        self.memory = trace.memory.get(rank, ())
        self.activity = trace.activity(rank)
        self.origin = _origin(trace)
        made = how_made(trace.facts)
        self.name_of_rank = f"rank {rank}, {made}" if made else f"rank {rank}"
        self.correlation = itertools.count(1)  # HTA skips kernels without a correlation

    def name(self) -> Iterator[_Event]:
        yield self._meta("process_name", 0, {"name": self.name_of_rank, "rank": self.rank})
        yield self._meta("process_sort_index", 0, {"sort_index": self.rank})

    def shown(self) -> Iterator[_Event]:
        """Return the events of one rank for Perfetto."""
        return itertools.chain(self.name(), self.recorded(), self.held())

    def recorded(self) -> Iterator[_Event]:
        """Yield the spans unchanged, as events in rows in which spans nest."""
        for place, (lane, spans) in enumerate(self._lanes().items()):
            nest = lane in ("compute", HOST) or lane.startswith("stream")
            for n, row in enumerate(_rows(spans, nest=nest)):
                thread = place * _PLACES + n + 1
                yield from self._name_row(thread, lane)
                for span in row:
                    facts = _facts(span)
                    if span.collected_ns is not None and span.collected_ns > span.end_ns:
                        facts["collected_us"] = self._us(span.collected_ns)
                    if LAUNCHED in facts:
                        facts["launched_us"] = self._us(int(span.args[LAUNCHED]))
                        del facts[LAUNCHED]
                    yield self._slice(span.name, span.kind, _times(span), thread, facts)
                    if span.ready_ns is not None and span.ready_ns > span.start_ns:
                        waiting = (span.start_ns, min(span.ready_ns, span.end_ns))
                        yield self._slice("waits for peers", span.kind, waiting, thread, {})

    def _lanes(self) -> dict[str, list[Span]]:
        """Return the spans by row: one row per queue, if the trace has a row for the host."""
        if not any(span.kind == "host" for span in self.spans):
            return {row: [s for s in self.spans if _row_of(s) == row] for row in _ROWS}
        found: dict[str, list[Span]] = {row: [] for row in _FIRST}
        steps = [span for span in self.spans if span.kind == "step"]
        others = by_queue(span for span in self.spans if span.kind != "step")
        return {**found, "step": steps, **others}

    def held(self) -> Iterator[_Event]:
        """Yield events with the rank's memory levels, if they are known."""
        for level in inside(self.memory, *self.window):
            at = self._us(max(level.ns, self.window[0]))
            args = dict(zip(MEMORY_KINDS, level.nbytes, strict=True))
            yield {"ph": "C", "name": "memory (bytes)", "pid": self.rank, "ts": at, "args": args}

    def counted(self) -> Iterator[_Event]:
        """Yield the intervals of `Activity` as events that look like kernels of a GPU."""
        first = _COUNTED["compute"] * _PLACES
        yield from self._name_row(first, "counted: compute")
        for edge in self.window:
            yield self._kernel("window", (edge, edge), first)
        spans = (span for span in self.spans if span.is_compute)
        for start, end, span in innermost(spans, self.activity.compute):
            yield self._kernel(f"{span.kind} {span.name}", (start, end), first)
        ops = (span for span in self.spans if span.is_comm)
        for n, row in enumerate(_rows(ops, nest=False)):
            thread = _COUNTED["comm"] * _PLACES + n
            yield from self._name_row(thread, "counted: comm")
            for span in row:
                name = f"ncclDevKernel_{span.name}"
                yield self._kernel(name, _times(span), thread, _collective(span))
        for n, row in enumerate(_rows((s for s in self.spans if s.is_copy), nest=False)):
            thread = _COUNTED["copy"] * _PLACES + n
            yield from self._name_row(thread, "counted: copy")
            for span in row:
                event = self._kernel("", _times(span), thread, {"bytes": span.bytes})
                yield {**event, "name": name_on_cuda(span.name)}

    def _kernel(
        self, name: str, times: Interval, thread: int, args: dict[str, object] | None = None
    ) -> _Event:
        stream = {"device": 0, "stream": thread, "correlation": next(self.correlation)}
        return self._slice(name, "kernel", times, thread, {**stream, **(args or {})})

    def _slice(
        self, name: str, cat: str, times: Interval, thread: int, args: dict[str, object]
    ) -> _Event:
        """Return an event that is cut to the rank's window.

        A host's event is cut only at the end of the window, because a host may begin earlier.
        """
        first, last = self.window
        first = min(first, times[0]) if cat == "host" else first
        start, end = (self._us(min(max(at, first), last)) for at in times)
        name = _MISREAD.sub(lambda found: found[0].lower(), name)
        return {
            "ph": "X", "cat": cat, "name": name, "pid": self.rank, "tid": thread,
            "ts": start, "dur": end - start, "args": args,
        }  # fmt: skip

    def _us(self, at_ns: int) -> int:
        return (at_ns - self.origin + 500) // 1000

    def _name_row(self, thread: int, name: str) -> Iterator[_Event]:
        yield self._meta("thread_name", thread, {"name": name})
        yield self._meta("thread_sort_index", thread, {"sort_index": thread})

    def _meta(self, name: str, thread: int, args: dict[str, object]) -> _Event:
        return {"ph": "M", "name": name, "pid": self.rank, "tid": thread, "ts": 0, "args": args}


def _row_of(span: Span) -> str:
    return "compute" if span.is_compute else span.kind


def _rows(spans: Iterable[Span], *, nest: bool) -> list[list[Span]]:
    """Return the fewest rows in which no two spans overlap partly.

    With `nest`, a span may lie inside another span of its row; without `nest`, all spans of a row
    are apart.
    """
    rows: list[tuple[list[Span], list[int]]] = []  # a row's spans, and the ends of its open spans
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        for row in rows:
            open_ = row[1]
            while open_ and open_[-1] <= span.start_ns:
                open_.pop()
            if not open_ or (nest and span.end_ns <= open_[-1]):
                break
        else:
            row = ([], [])
            rows.append(row)
        row[0].append(span)
        row[1].append(span.end_ns)
    return [inside for inside, _ in rows]


def _times(span: Span) -> Interval:
    return span.start_ns, span.end_ns


def _facts(span: Span) -> dict[str, object]:
    """Return the facts that Perfetto shows for a clicked slice, without "stream".

    HTA counts any slice with "stream" as a kernel.
    """
    args: dict[str, object] = {k: value for k, value in span.args.items() if k != "stream"}
    if span.is_copy:
        return {**args, "bytes": span.bytes}
    if not span.is_comm:
        return args
    known = {"bytes": span.bytes, "peer": span.peer, "group": span.group or None, "seq": span.seq}
    return {**args, **{key: value for key, value in known.items() if value is not None}}


def _collective(span: Span) -> dict[str, object]:
    """Return the args that torch.profiler writes for an NCCL kernel, with elements of one byte."""
    args: dict[str, object] = {
        "Collective name": span.name,
        "dtype": "Byte",
        "In msg nelems": span.bytes,
        "Out msg nelems": span.bytes,
        "Process Group Name": span.group,
    }
    if span.seq is not None:
        args["Seq"] = span.seq
    if "group_desc" in span.args:
        name, _, members = str(span.args["group_desc"]).partition(" [")
        args |= {"Process Group Description": name, "Process Group Ranks": f"[{members}"}
    if "group_size" in span.args:
        args["Group size"] = span.args["group_size"]
    if span.peer is not None:
        args["Src Rank" if span.is_recv else "Dst Rank"] = span.peer
    return args
