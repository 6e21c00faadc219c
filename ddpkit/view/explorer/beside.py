"""`page_beside`: two runs on one HTML page, with timelines that zoom and move together."""

from __future__ import annotations

from html import escape
from math import ceil, floor
from typing import Any

from ddpkit.trace import Trace
from ddpkit.view.drawing.changes import KIND_HEADS, changes
from ddpkit.view.explorer.document import EXPLORER, document, drawn, legend, table
from ddpkit.view.timeline.model import few, timeline_model

LABELS = ("first run", "second run")


def page_beside(
    traces: tuple[Trace, Trace], labels: tuple[str, str] = LABELS, step: int | None = None
) -> str:
    """Return the page of two runs: step ``step`` of both, or the typical step of each.

    Raises TraceError if there is no such step.
    """
    found = changes(traces, labels, step)
    models = [timeline_model(*pair) for pair in zip(traces, found.steps, strict=True)]
    title = f"{labels[0]} beside {labels[1]}"
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(found.finding())}</p>"]
    for label, model in zip(labels, models, strict=True):
        body += [f"<h2>{escape(label)}</h2>", f"<p>{escape(model.title)}</p>", EXPLORER]
    body += [
        *legend(*models),
        "<h2>Changes by rank</h2>",
        *table("ranks", ["", *found.heads()], map(found.row, found.ranks)),
        f"<h2>Changes by kind of work, on the slowest rank of each {found.whole}</h2>",
        *table("kinds", ["", *KIND_HEADS], found.kind_rows()),
        "<h2>As text</h2>",
        f"<pre>{escape(found.text())}</pre>",
    ]
    runs = [
        drawn(trace, k, f"{label}: {model.title}", few(model))
        for trace, k, label, model in zip(traces, found.steps, labels, models, strict=True)
    ]
    _on_one_scale([run["picture"] for run in runs])
    return document(title, body, runs)


def _on_one_scale(pictures: list[dict[str, Any]]) -> None:
    """Give all pictures the same range of time; each picture counts time in its own ticks."""
    lengths = [picture["length"] * picture["tick_ns"] for picture in pictures]
    starts, ends = zip(
        *([end * picture["tick_ns"] for end in picture["extent"]] for picture in pictures),
        strict=True,
    )
    for picture in pictures:
        tick = picture["tick_ns"]
        picture["length"] = ceil(max(lengths) / tick)
        picture["extent"] = [floor(min(starts) / tick), ceil(max(ends) / tick)]
