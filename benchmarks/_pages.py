"""The HTML page of a trace in a browser: its size, the time to draw it, a frame of a zoom."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._report import Figure, Sample
from ddpkit.trace import Span, Trace
from ddpkit.view.explorer.page import page_bytes
from tests.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

OPEN_S, FRAME_S = 5.0, 0.05  # goals for a million spans: seconds to open, and for a frame
EXPLORER = "document.querySelector('.explorer > div')?.explorer"
SCREEN: ViewportSize = {"width": 1280, "height": 800}
UNFOLD = f"{EXPLORER}.onfold(false)"
FRAME = f"""() => {{
  const explorer = {EXPLORER}, times = [];
  for (const factor of [1, 0.5, 0.5, 0.5, 2, 2, 2]) {{
    explorer.zoom(factor);
    const start = performance.now();
    explorer.draw();
    explorer.pen.getImageData(0, 0, 1, 1); // ends when the picture is painted
    times.push((performance.now() - start) / 1000);
  }}
  return times.slice(1);
}}"""


def random_run(ranks: int, spans: int) -> Trace:
    """Return a run with ``spans`` spans on each rank, of random lengths."""
    chance, found = random.Random(0), list[Span]()
    for rank in range(ranks):
        at = 0
        for k in range(spans // 2):
            end = at + chance.randrange(20_000, 2_000_000)
            ready = at + chance.randrange(0, 1_000_000)
            arrived = ready + chance.randrange(5_000, 900_000)
            name = f"layer {k % 96}"
            found.append(Span(rank, "compute", name, "forward", at, end))
            found.append(
                Span(rank, "comm", "all_reduce", "comm", at, arrived, 1 << 20, ready_ns=ready)
            )
            at = max(end, arrived) + chance.randrange(0, 5_000)
    return Trace(found, ranks, {"backend": "gloo", "device": "cpu"})


def in_a_browser(ranks: int, spans: int) -> Iterator[Figure]:
    """Measure the page of a random run, with all ranks unfolded."""
    trace = random_run(ranks, spans)
    said = f"{ranks} ranks, {len(trace.spans):,} spans"
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder) / "page.html"
        path.write_bytes(page_bytes(trace))
        note = f"{path.stat().st_size / 1e6:.1f} MB"
        opened = list[float]()
        for _ in range(3):
            tab = browser.new_page(viewport=SCREEN, bypass_csp=True)
            start = time.perf_counter()
            tab.goto(path.as_uri())
            tab.wait_for_function(f"{EXPLORER}?.wide > 0")
            opened.append(time.perf_counter() - start)
            tab.evaluate(UNFOLD)
            frames = tab.evaluate(FRAME)
            tab.close()
    yield Figure(f"{said}: page opened", "s", Sample.of(opened), goal=OPEN_S, note=note)
    yield Figure(f"{said}: a frame of a zoom", "s", Sample.of(frames), goal=FRAME_S)
