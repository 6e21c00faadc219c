"""`page`: a trace as one HTML page, to be sent and opened anywhere.

The page holds the explorer and its data, loads nothing from the network, and follows the light or
dark theme of the reader's system. Tables have the numbers too, and need no JavaScript.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from ddpkit.files import write_whole
from ddpkit.text import NAME, cut, size
from ddpkit.trace import MEMORY_KINDS, Trace
from ddpkit.view.drawing import words
from ddpkit.view.drawing.rows import RankRow
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.explorer.beside import LABELS, page_beside
from ddpkit.view.explorer.document import EXPLORER, document, drawn, legend, table
from ddpkit.view.timeline.model import Timeline, few, timeline_model

STEPS = 20  # the table of steps has at most this many steps, the last ones


def page(trace: Trace, step: int | None = None) -> str:
    """Return the page of a trace, or of one of its steps.

    Raises TraceError if there is no such step.
    """
    model = timeline_model(trace, step)
    body = [
        f"<h1>{escape(model.title)}</h1>",
        f"<p>{escape(model.headline)}</p>",
        *_note(model),
        EXPLORER,
        *legend(model),
        *_tables(trace, model, step),
        "<h2>As text</h2>",
        f"<pre>{escape(model.text)}</pre>",
    ]
    return document(model.title, body, [drawn(trace, step, model.title, few(model))])


def write_page(
    run_or_trace: HasTrace | Trace,
    path: str | os.PathLike[str],
    step: int | None = None,
    *,
    beside: HasTrace | Trace | None = None,
    labels: tuple[str, str] = LABELS,
) -> None:
    """Write a run as one HTML page, with its tables; the page works offline in any browser.

    step    the number of a step; None: the whole run
    beside  another run: then the page has the timelines of both runs, which zoom and move together,
            and tables of the changes from `run_or_trace` to `beside`. Without ``step``, the typical
            step of each run is shown
    labels  names of the two runs

    Raises TraceError if there is no such step, or `run_or_trace` is neither a run nor a trace, and
    OSError if the file cannot be written.
    """
    given = [run_or_trace] if beside is None else [run_or_trace, beside]
    if nothing := skipped("write_page", *given):
        print(nothing)
        return
    other = None if beside is None else trace_of(beside)
    write_whole(Path(path), page_bytes(trace_of(run_or_trace), step, other, labels))


def page_bytes(
    trace: Trace,
    step: int | None = None,
    beside: Trace | None = None,
    labels: tuple[str, str] = LABELS,
) -> bytes:
    """Return the page as bytes of a file; characters that are not valid text become "?"."""
    text = page(trace, step) if beside is None else page_beside((trace, beside), labels, step)
    return text.encode("utf-8", "replace")


def _note(model: Timeline) -> Iterator[str]:
    if model.note:
        yield f'<p class="note">{escape(model.note)}</p>'


def _tables(trace: Trace, model: Timeline, step: int | None) -> Iterator[str]:
    shown = words.columns_of(row.breakdown for row in model.rows)
    named = (name.replace("comm", "communication", name.endswith(" comm")) for name in shown)
    heads = ["", model.whole, *named, "hidden", "waiting for peers"]
    yield "<h2>Where the time went</h2>"
    yield from table("breakdown", heads, (_numbers(row, shown.values()) for row in model.rows))
    if any(row.copied for row in model.rows):
        yield "<h2>Copies between host and device</h2>"
        heads = ["", "direction", "times", "bytes", "time", "hidden"]
        yield from table("copies", heads, (cells for row in model.rows for cells in _copied(row)))
    if step is None and trace.steps:
        first = max(0, trace.steps - STEPS)
        yield f"<h2>{'Steps' if not first else f'The last {STEPS} of {trace.steps:,} steps'}</h2>"
        heads = ["step", "longest", "most exposed communication", "most idle"]
        yield from table("steps", heads, (_step(trace, k) for k in range(first, trace.steps)))
    trace = trace if step is None else trace.step(step)
    if trace.traffic.collective or trace.traffic.p2p:
        yield "<h2>What was sent</h2>"
        yield from table("traffic", ["", "operation", "times", "bytes"], _traffic(trace))
    if peaks := {rank: level for rank in trace.ranks if (level := trace.peak(rank))}:
        yield "<h2>Memory, when a rank held most</h2>"
        rows = (
            [f"rank {rank}", size(level.total), *map(size, level.nbytes)]
            for rank, level in peaks.items()
        )
        yield from table("memory", ["", "in all", *MEMORY_KINDS], rows)
    if trace.facts:
        yield "<h2>Facts about the run</h2>"
        known = [[name, str(value)] for name, value in trace.facts.items()]
        yield from table("facts", ["fact", "value"], known)


def _numbers(row: RankRow, fields: Iterable[str]) -> list[str]:
    """Return the cells of a rank's row: the parts of its time in ms and percent."""
    p = row.breakdown
    times = (getattr(p, field) for field in fields)
    cells = [f"{words.ms(ns)} ({words.percent(ns, p.step_ns)})" for ns in times]
    hidden = "" if p.hidden is None else words.percent(p.overlapped_ns, p.comm_ns)
    return [row.name, words.ms(p.step_ns), *cells, hidden, words.ms(row.waiting_ns)]


def _copied(row: RankRow) -> Iterator[list[str]]:
    """Yield the rows of a rank's copies, one for each direction."""
    for name, each in row.copied.items():
        hidden = words.percent(each.hidden_ns, each.ns)
        yield [row.name, name, f"{each.times:,}", size(each.bytes), words.ms(each.ns), hidden]


def _step(trace: Trace, k: int) -> list[str]:
    """Return the cells of a step's row: in each column, the largest number of any rank."""
    parts = list(trace.step(k).breakdown().values())
    most = [max(getattr(p, f"{name}_ns") for p in parts) for name in ("step", "exposed", "idle")]
    return [str(k), *map(words.ms, most)]


def _traffic(trace: Trace) -> Iterator[list[str]]:
    """Yield rows of the bytes that each rank sent; rows that all ranks share appear once."""
    sent = {rank: list(_sent(trace, rank)) for rank in trace.recorded_ranks}
    times = Counter(tuple(row) for rows in sent.values() for row in rows)
    first = trace.recorded_ranks[0]
    for rank, rows in sent.items():
        for row in rows:
            alike = times[tuple(row)] == len(sent) > 1
            if rank == first or not alike:
                yield ["every rank" if alike else f"rank {rank}", *row]


def _sent(trace: Trace, rank: int) -> Iterator[list[str]]:
    for peer, each in trace.traffic.peers(rank).items():
        yield [f"message to rank {peer}", f"{each.times:,}", size(each.bytes)]
    for name, each in trace.traffic.collectives(rank).items():
        yield [cut(name, NAME), f"{each.times:,}", size(each.bytes)]
