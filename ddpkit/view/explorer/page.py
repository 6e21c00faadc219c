"""`page`: a trace as one HTML page, to be sent and opened anywhere.

It holds the explorer and its data, asks the network for nothing, and is light or dark as its reader
has it. Its numbers stand in tables too, which need no JavaScript.

A trace may be anybody's, and so may the names in it: whatever comes from it is escaped where it
becomes HTML, and is data, never code, where the script reads it. The page's own policy lets no
other script run, and nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from ddpkit.files import write_whole
from ddpkit.text import NAME, cut, size
from ddpkit.trace import MEMORY_KINDS, Trace
from ddpkit.view.drawing import style, words
from ddpkit.view.drawing.rows import RankRow
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.explorer.look import DARK, LOOK
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.timeline.model import Timeline, timeline_model

STEPS = 20  # steps that a table lists, the last ones

DRAW = """
const given = JSON.parse(document.getElementById("trace").textContent);
const spans = Uint8Array.from(atob(given.spans), (letter) => letter.charCodeAt(0));
const here = document.getElementById("explorer");
const night = matchMedia("(prefers-color-scheme: dark)");
async function draw() {
  const picture = { ...given.picture, ink: night.matches ? given.dark : given.picture.ink };
  const whole = document.createElement("div");
  await render({ model: { get: (name) => ({ picture, spans })[name] }, el: whole });
  here.replaceChildren(whole);
}
night.addEventListener("change", draw);
draw();
"""

STYLE = f"""
:root {{ color-scheme: light dark; --ink: {style.INK}; --grey: #5B6875; --paper: white;
  --line: {style.GRID}; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: {DARK["text"]}; --grey: {DARK["grey"]};
  --paper: {DARK["paper"]}; --line: {DARK["grid"]}; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1200px; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.35rem; line-height: 1.3; }}
h2 {{ font-size: 1.05rem; margin-top: 2rem; }}
p.note {{ color: var(--grey); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .8rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
.facts td {{ text-align: left; white-space: normal; }}
ul.kinds {{ list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; }}
.kinds span {{ display: inline-block; width: 1.4em; height: .8em; margin-right: .4em; }}
pre {{ overflow-x: auto; font-size: 13px; }}
"""

KINDS = {
    "forward": style.FORWARD,
    "backward": style.BACKWARD,
    "optimizer": style.OPTIMIZER,
    "a span of your own": style.SPAN,
    "communication": style.MOVING,
    "waits for a peer": style.WAITING,
    "exposed communication": style.EXPOSED,
    "done, not collected": style.DONE,
}


HATCH = "repeating-linear-gradient(-45deg, {} 0 1.5px, transparent 1.5px 5px)"


def page(trace: Trace, step: int | None = None) -> str:
    """The page of a trace, or of one of its steps. Raises TraceError if there is no such step."""
    model = timeline_model(trace, step)
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(model.title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    body = [
        f"<h1>{escape(model.title)}</h1>",
        f"<p>{escape(model.headline)}</p>",
        *_note(model),
        '<div id="explorer"><noscript>The picture needs JavaScript; its numbers are below.'
        "</noscript></div>",
        *_legend(model),
        *_tables(trace, model, step),
        "<h2>As text</h2>",
        f"<pre>{escape(model.text)}</pre>",
        f'<script type="application/json" id="trace">{_data(trace, step, model)}</script>',
        f"<script>{script}</script>",
    ]
    lines = ['<!DOCTYPE html><html lang="en"><head>', *head, "</head><body>", *body]
    return "\n".join([*lines, "</body></html>"]) + "\n"


def write_page(
    run_or_trace: HasTrace | Trace, path: str | os.PathLike[str], step: int | None = None
) -> None:
    """Write a run as one HTML page, with its tables; the page works offline in any browser.

    step  the number of a step; None: the whole run

    Raises TraceError if there is no such step, or `run_or_trace` is neither a run nor a trace, and
    OSError if the file cannot be written.
    """
    if nothing := skipped("write_page", run_or_trace):
        print(nothing)
        return
    write_whole(Path(path), page_bytes(trace_of(run_or_trace), step))


def page_bytes(trace: Trace, step: int | None = None) -> bytes:
    """The page as it is written: a name that is no text becomes question marks."""
    return page(trace, step).encode("utf-8", "replace")


def _script() -> str:
    """The explorer's code, and what starts it."""
    code = Path(__file__).with_name("canvas.js").read_text("utf-8")
    return "(() => {" + code.replace("export default { render };", DRAW) + "})();"


def _data(trace: Trace, step: int | None, model: Timeline) -> str:
    """What the script reads: JSON without a "<", which alone could end its element."""
    columns = span_columns(trace, step)
    described = {**columns.described(), **LOOK, "title": model.title}
    described["names"] = [cut(name, NAME) for name in columns.names]
    packed = base64.b64encode(columns.packed()).decode()
    data = {"picture": described, "dark": DARK, "spans": packed}
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _note(model: Timeline) -> Iterator[str]:
    if model.note:
        yield f'<p class="note">{escape(model.note)}</p>'


def _legend(model: Timeline) -> Iterator[str]:
    yield '<ul class="kinds">'
    copy = {"copy between host and device": style.COPY} if any(r.copied for r in model.rows) else {}
    for name, color in {**KINDS, **copy}.items():
        fill = HATCH.format(color) if color == style.EXPOSED else color
        yield f'<li><span style="background: {fill}"></span>{name}</li>'
    yield "</ul>"


def _tables(trace: Trace, model: Timeline, step: int | None) -> Iterator[str]:
    shown = words.columns_of(row.breakdown for row in model.rows)
    named = (name.replace("comm", "communication", name.endswith(" comm")) for name in shown)
    heads = ["", model.whole, *named, "hidden", "waiting for peers"]
    yield "<h2>Where the time went</h2>"
    yield from _table("breakdown", heads, (_numbers(row, shown.values()) for row in model.rows))
    if any(row.copied for row in model.rows):
        yield "<h2>Copies between host and device</h2>"
        heads = ["", "direction", "times", "bytes", "time", "hidden"]
        yield from _table("copies", heads, (cells for row in model.rows for cells in _copied(row)))
    if step is None and trace.steps:
        first = max(0, trace.steps - STEPS)
        yield f"<h2>{'Steps' if not first else f'The last {STEPS} of {trace.steps:,} steps'}</h2>"
        heads = ["step", "longest", "most exposed communication", "most idle"]
        yield from _table("steps", heads, (_step(trace, k) for k in range(first, trace.steps)))
    if trace.traffic.collective or trace.traffic.p2p:
        yield "<h2>What was sent</h2>"
        yield from _table("traffic", ["", "operation", "times", "bytes"], _traffic(trace))
    if peaks := {rank: level for rank in trace.ranks if (level := trace.peak(rank))}:
        yield "<h2>Memory, when a rank held most</h2>"
        rows = (
            [f"rank {rank}", size(level.total), *map(size, level.nbytes)]
            for rank, level in peaks.items()
        )
        yield from _table("memory", ["", "in all", *MEMORY_KINDS], rows)
    if trace.facts:
        yield "<h2>What is known of it</h2>"
        known = [[name, str(value)] for name, value in trace.facts.items()]
        yield from _table("facts", ["fact", "value"], known)


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f'<div class="wide"><table class="{name}">'
    yield _row("th", heads)
    yield from (_row("td", cells) for cells in rows)
    yield "</table></div>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _numbers(row: RankRow, fields: Iterable[str]) -> list[str]:
    """A rank's row: its parts in ms and percent."""
    p = row.breakdown
    times = (getattr(p, field) for field in fields)
    cells = [f"{words.ms(ns)} ({words.percent(ns, p.step_ns)})" for ns in times]
    hidden = "" if p.hidden is None else words.percent(p.overlapped_ns, p.comm_ns)
    return [row.name, words.ms(p.step_ns), *cells, hidden, words.ms(row.waiting_ns)]


def _copied(row: RankRow) -> Iterator[list[str]]:
    """The rows of a rank's copies, by direction."""
    for name, each in row.copied.items():
        hidden = words.percent(each.hidden_ns, each.ns)
        yield [row.name, name, f"{each.times:,}", size(each.bytes), words.ms(each.ns), hidden]


def _step(trace: Trace, k: int) -> list[str]:
    """A step's row: the most of any rank."""
    parts = list(trace.step(k).breakdown().values())
    most = [max(getattr(p, f"{name}_ns") for p in parts) for name in ("step", "exposed", "idle")]
    return [str(k), *map(words.ms, most)]


def _traffic(trace: Trace) -> Iterator[list[str]]:
    """What each rank sent; one row for all, where all did alike."""
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
