"""The parts of an HTML page with explorers: the document, its data, legends and tables.

A trace may come from a stranger, and so may the names in the trace: text from a trace is escaped in
HTML, and the script reads the text as data, never as code. The page's Content-Security-Policy
forbids other scripts, and all loading.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from ddpkit.text import NAME, cut
from ddpkit.trace import Trace
from ddpkit.view.drawing import style
from ddpkit.view.explorer.look import DARK, LOOK, WORDS, code
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.timeline.model import Timeline

EXPLORER = (
    '<div class="explorer"><noscript>The picture needs JavaScript; its numbers are below.'
    "</noscript></div>"
)

DRAW = """
const given = JSON.parse(document.getElementById("trace").textContent);
const places = document.querySelectorAll(".explorer");
const night = matchMedia("(prefers-color-scheme: dark)");
async function drawn({ picture, spans }) {
  picture = { ...picture, ink: night.matches ? given.dark : picture.ink };
  const letters = atob(spans), bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  const el = document.createElement("div");
  await render({ model: { get: (name) => ({ picture, spans: bytes })[name] }, el });
  return el;
}
async function draw() {
  const made = await Promise.all(given.runs.map(drawn));
  made.forEach((el, n) => places[n].replaceChildren(el));
  const explorers = made.map((el) => el.explorer); // linked: all zoom and move together
  for (const explorer of explorers) {
    const linked = explorers.filter((each) => each !== explorer);
    explorer.onlook = (from, to) => linked.forEach((each) => each.show(from, to));
  }
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

HATCH = "repeating-linear-gradient(-45deg, {} 0 1.5px, transparent 1.5px 5px)"


def document(title: str, body: Iterable[str], runs: Sequence[dict[str, Any]]) -> str:
    """Return a page; ``runs`` has the result of `drawn` for each `EXPLORER` of the body."""
    program = script()
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    scripts = [
        f'<script type="application/json" id="trace">{_data(runs)}</script>',
        f"<script>{program}</script>",
    ]
    lines = ['<!DOCTYPE html><html lang="en"><head>', *head, "</head><body>", *body, *scripts]
    return "\n".join([*lines, "</body></html>"]) + "\n"


def drawn(
    trace: Trace, step: int | None, title: str, few: Sequence[tuple[int, str]] = ()
) -> dict[str, Any]:
    """Return the data of an explorer for `document`; ``few`` has the ranks to show first."""
    columns = span_columns(trace, step)
    described = {**columns.described(), **LOOK, "title": title, "few": [*few]}
    described["names"] = [cut(name, NAME) for name in columns.names]
    return {"picture": described, "spans": base64.b64encode(columns.packed()).decode()}


def _data(runs: Sequence[dict[str, Any]]) -> str:
    """Return the text that the script reads: JSON without "<", which could end the element."""
    data = {"runs": runs, "dark": DARK}
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def script() -> str:
    """Return the explorer's JavaScript, and the code that starts the explorer."""
    return "(() => {" + code().replace("export default { render };", DRAW) + "})();"


def legend(*models: Timeline) -> Iterator[str]:
    """Yield the list of the kinds of bars; copies and hosts only if the models have some."""
    yield '<ul class="kinds">'
    some_copies = any(row.copied for model in models for row in model.rows)
    copy = {"copy": "copy between host and device"} if some_copies else {}
    some_hosts = any(row.more for model in models for row in model.rows)
    host = {"host": "the host of a device: launches and waits"} if some_hosts else {}
    for kind, name in {**WORDS, **copy, **host}.items():
        color = style.FACE.get(kind, style.EXPOSED)
        look = f"background: {color if kind in style.FACE else HATCH.format(color)}"
        if kind in style.EDGE:
            look += f"; outline: 1px solid {style.EDGE[kind]}"
        yield f'<li><span style="{look}"></span>{name}</li>'
    yield "</ul>"


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the HTML of a table, in a box that scrolls."""
    yield f'<div class="wide"><table class="{name}">'
    yield row("th", heads)
    yield from (row("td", cells) for cells in rows)
    yield "</table></div>"


def row(tag: str, cells: Sequence[str]) -> str:
    """Return a table row as HTML; ``tag`` is "th" for headings, "td" for other cells."""
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
