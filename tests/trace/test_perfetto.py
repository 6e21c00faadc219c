"""Perfetto opens the files of `to_chrome`, and shows every span at its time, with its facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpkit import Cluster
from ddpkit.trace import Trace, how_made
from tests.trace.perfetto import Perfetto
from tests.trace.test_chrome import crowded_trace
from tests.trace.test_hta import waits_late
from tests.view.examples import ddp

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).parents[1] / "artifacts"
SLICES = """
select process.name as rank, thread.name as row, slice.name as name, ts, dur,
       ifnull(extract_arg(slice.arg_set_id, 'args.bytes'), 0) as bytes
from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid)
"""
LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
CASES: dict[str, Callable[[], Trace]] = {
    "crowded": crowded_trace,
    "step_of_four": lambda: ddp(4, steps=2).step(1),
    "emulated": lambda: emulated_run(),
}
Slice = tuple[str, str, int, int, int]  # rank, name, start and length in ns, bytes


def emulated_run() -> Trace:
    """Return a run of two ranks in emulated time, with a message that is done before its wait."""
    return Cluster(2, link="1 Gbit/s, 200 us", speed={1: 0.5}).run(waits_late).trace


def slices_of(trace: Trace) -> list[Slice]:
    """Return the spans as they should appear: cut to their rank's window, at whole microseconds."""

    def ns(rank: int, at: int) -> int:
        first, last = trace.window_of(rank)
        return (min(max(at, first), last) - trace.start_ns + 500) // 1000 * 1000

    found = []
    for span in trace.spans:
        times = [(span.name, span.start_ns, span.end_ns)]
        if span.ready_ns is not None and span.ready_ns > span.start_ns:
            times.append(("waits for peers", span.start_ns, min(span.ready_ns, span.end_ns)))
        for name, start, end in times:
            at, until = ns(span.rank, start), ns(span.rank, end)
            size = span.bytes if span.is_comm and name == span.name else 0
            made = how_made(trace.facts)
            rank = f"rank {span.rank}, {made}" if made else f"rank {span.rank}"
            found.append((rank, name, at, until - at, size))
    return sorted(found)


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_in_one_file(case: str, browser: Browser, tmp_path: Path) -> None:
    trace = CASES[case]()
    (path,) = trace.to_chrome(tmp_path / ("run.json" if case == "crowded" else "run.json.gz"))
    perfetto = Perfetto(browser, path)
    seen = perfetto.query(SLICES)
    lost = perfetto.query(LOST)
    ARTIFACTS.mkdir(exist_ok=True)
    perfetto.page.wait_for_timeout(500)  # until Perfetto has drawn
    perfetto.page.screenshot(path=ARTIFACTS / f"perfetto_{case}.png")
    perfetto.close()
    assert lost == []
    assert slices_of(trace) == sorted(
        (row["rank"], row["name"], row["ts"], row["dur"], row["bytes"]) for row in seen
    )
    assert {row["row"] for row in seen} <= {"compute", "comm", "step"}


def test_the_file_of_one_rank(browser: Browser, tmp_path: Path) -> None:
    """The file for HolisticTraceAnalysis has the counted rows, and Perfetto loses none."""
    path = crowded_trace().to_chrome(tmp_path)[0]
    perfetto = Perfetto(browser, path)
    seen = perfetto.query(SLICES)
    assert perfetto.query(LOST) == []
    perfetto.close()
    written = json.loads(path.read_text())["traceEvents"]
    assert sorted((row["name"], row["ts"], row["dur"]) for row in seen) == sorted(
        (each["name"], each["ts"] * 1000, each["dur"] * 1000)
        for each in written
        if each["ph"] == "X"
    )
