"""The files of `to_chrome`. test_perfetto.py and test_hta.py test them in Perfetto and HTA."""

import gzip
import itertools
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from tests.view.examples import ddp

US = 1000


def exported(trace: Trace, folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in trace.to_chrome(folder)]


def slices(top: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in top["traceEvents"] if event["ph"] == "X"]


def rows(top: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return row name -> slices."""
    names = {
        event["tid"]: event["args"]["name"]
        for event in top["traceEvents"]
        if event["name"] == "thread_name"
    }
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in slices(top):
        found[names[event["tid"]]].append(event)
    return found


def crowded_trace() -> Trace:
    """Return compute that nests and overlaps, and operations, all at odd nanoseconds."""
    spans = [
        Span(0, "step", "step", "step", 1, 90_001),
        Span(0, "compute", "Sequential", "forward", 1_499, 40_501),
        Span(0, "compute", "Linear", "forward", 1_501, 20_499),
        Span(0, "compute", "other thread", "span", 30_000, 50_500),
        Span(0, "comm", "all_reduce", "comm", 10_000, 60_000, 8, seq=1, group="0", ready_ns=12_600),
        Span(0, "comm", "send", "comm", 30_000, 70_499, 4, peer=1, blocked_ns=45_000,
             args={"tag": 3}),
        Span(1, "comm", "all_reduce", "comm", 12_600, 60_100, 8, seq=1, group="0", ready_ns=12_600),
    ]  # fmt: skip
    return Trace(tuple(spans), 2, {"backend": "gloo"})


@pytest.fixture
def crowded() -> Trace:
    return crowded_trace()


def test_one_file_a_rank_that_says_its_rank_first(crowded: Trace, tmp_path: Path) -> None:
    """The rank comes before any other text that looks like a rank."""
    span = Span(0, "compute", "x", "span", 0, 100, args={"rank": 7})
    crowded = Trace((span, *crowded.spans), 2)
    paths = crowded.to_chrome(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["rank0.json", "rank1.json"]
    for rank, path in enumerate(paths):
        first = re.search(r'"rank": (\d+)', path.read_text())
        assert first
        assert first[1] == str(rank)


@pytest.mark.parametrize("step", [None, 1])
def test_slices_of_a_row_nest(crowded: Trace, tmp_path: Path, step: int | None) -> None:
    trace = crowded if step is None else ddp(3, steps=2).step(step)
    for rank, top in enumerate(exported(trace, tmp_path)):
        by_row: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for event in slices(top):
            assert event["pid"] == rank
            assert type(event["ts"]) is type(event["dur"]) is int
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            by_row[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        for times in by_row.values():
            for a, b in itertools.combinations(times, 2):
                apart = a[1] <= b[0] or b[1] <= a[0]
                inside = (a[0] <= b[0] and b[1] <= a[1]) or (b[0] <= a[0] and a[1] <= b[1])
                assert apart or inside


def test_recorded_rows_are_the_spans(crowded: Trace, tmp_path: Path) -> None:
    found = rows(exported(crowded, tmp_path)[0])
    assert {event["name"] for event in found["compute"]} == {"Sequential", "Linear", "other thread"}
    names = [event["name"] for event in found["comm"]]
    assert names == ["all_reduce", "waits for peers", "send"]
    assert found["comm"][0]["args"] == {"bytes": 8, "group": "0", "seq": 1}
    assert found["comm"][2]["args"] == {"bytes": 4, "peer": 1, "tag": 3}
    assert [event["dur"] for event in found["step"]] == [90]


def test_what_was_collected_later_says_when(tmp_path: Path) -> None:
    """The slice ends when the operation is done, because no data moves afterwards."""
    spans = [
        Span(0, "comm", "isend", "comm", 1000, 3000, collected_ns=9000),
        Span(0, "comm", "send", "comm", 9000, 9500, collected_ns=9500),
    ]
    (top,) = exported(Trace(tuple(spans), 1), tmp_path)
    late, at_once = rows(top)["comm"]
    assert (late["ts"], late["dur"], late["args"]["collected_us"]) == (0, 2, 8)
    assert "collected_us" not in at_once["args"]


def test_counted_compute_is_what_the_breakdown_counts(crowded: Trace, tmp_path: Path) -> None:
    """Compute is in pieces of the innermost span, without the time blocked (from 45 us on)."""
    counted = rows(exported(crowded, tmp_path)[0])["counted: compute"]
    pieces = [(event["name"], event["ts"], event["ts"] + event["dur"]) for event in counted]
    assert pieces == [
        ("window", 0, 0),
        ("window", 90, 90),
        ("forward Sequential", 1, 2),
        ("forward Linear", 2, 20),
        ("forward Sequential", 20, 30),
        ("span other thread", 30, 45),
    ]
    assert all(event["cat"] == "kernel" and event["args"]["stream"] >= 0 for event in counted)


def test_what_was_exported_can_be_loaded(tmp_path: Path) -> None:
    """The export looks like a profiler's recording on GPUs, with the same four parts, up to
    rounding."""
    trace = ddp(3, steps=2)
    again = Trace.load(*trace.to_chrome(tmp_path))
    assert again.world_size == 3
    for rank, ours in trace.breakdown().items():
        theirs = again.breakdown()[rank]
        for part in ("compute_only_ns", "overlapped_ns", "exposed_ns", "idle_ns"):
            assert getattr(theirs, part) == pytest.approx(getattr(ours, part), abs=50 * US)
    assert again.traffic == trace.traffic


def test_a_window_cuts_what_reaches_out_of_it(tmp_path: Path) -> None:
    spans = [Span(0, "compute", "x", "forward", 0, 9000), Span(0, "comm", "send", "comm", 0, 9000)]
    (top,) = exported(Trace(tuple(spans), 1).window(2000, 5000), tmp_path)
    assert {(event["ts"], event["dur"]) for event in slices(top)} == {(0, 3), (0, 0), (3, 0)}


@pytest.mark.parametrize("trace", [Trace((), 2), ddp(2).window(5, 5)])
def test_nothing_recorded(trace: Trace, tmp_path: Path) -> None:
    assert trace.to_chrome(tmp_path / "folder") == trace.to_chrome(tmp_path / "run.json") == []
    assert list(tmp_path.iterdir()) == []


def test_ranks_without_a_window_get_no_file(tmp_path: Path) -> None:
    trace = ddp(3)
    part = Trace(trace.spans, 3, bounds={0: (0, 0), 1: trace.window_of(1), 2: trace.window_of(2)})
    paths = part.to_chrome(tmp_path)
    assert [path.name for path in paths] == ["rank1.json", "rank2.json"]
    assert Trace.load(*paths).breakdown()[0].step_ns == 0


def test_no_recorded_span_looks_like_a_kernel(tmp_path: Path) -> None:
    span = Span(0, "compute", "x", "span", 0, 9000, args={"stream": 3, "note": "a"})
    (top,) = exported(Trace((span,), 1), tmp_path)
    assert rows(top)["compute"][0]["args"] == {"note": "a"}


def test_a_folder_with_other_traces_is_refused(crowded: Trace, tmp_path: Path) -> None:
    """HTA would take other files for ranks. A repeated export of the same trace is allowed."""
    crowded.to_chrome(tmp_path)
    crowded.to_chrome(tmp_path)
    with pytest.raises(TraceError, match=r"has other files \(rank1.json\).* give an empty folder"):
        Trace(crowded.of(0), 1).to_chrome(tmp_path)


def test_a_file_is_no_folder(crowded: Trace, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(TraceError, match="cannot write to the folder"):
        crowded.to_chrome(tmp_path / "taken")


def test_ready_times_after_the_end_are_cut(tmp_path: Path) -> None:
    """No slice extends beyond the slice around it."""
    late = Span(0, "comm", "send", "comm", 0, 5000, ready_ns=8000)
    more = Span(0, "comm", "send", "comm", 6000, 9000)
    (top,) = exported(Trace((late, more), 1), tmp_path)
    assert [(e["ts"], e["dur"]) for e in rows(top)["comm"]] == [(0, 5), (0, 5), (6, 3)]


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_all_ranks_in_one_file(crowded: Trace, tmp_path: Path, name: str) -> None:
    """The file has the recorded spans, without the rows for HTA. test_perfetto.py opens it."""
    path = tmp_path / name
    assert crowded.to_chrome(path) == crowded.to_chrome(path) == [path]
    data = path.read_bytes()
    top = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert next(iter(top)) == "traceEvents"
    assert {event["pid"] for event in top["traceEvents"]} == {0, 1}
    names = {event["args"]["name"] for event in top["traceEvents"] if event["ph"] == "M"
             and "name" in event["args"]}  # fmt: skip
    assert names == {"rank 0", "rank 1", "step", "compute", "comm"}
    with pytest.raises(TraceError, match="is an export for Perfetto"):
        Trace.load(path)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"backend": "gloo"}, "rank 1"),
        ({"backend": "gloo", "emulated": "1 Gbit/s, 200 us"}, "rank 1, emulated link"),
        (
            {"backend": "gloo", "emulated": "1 Gbit/s, 200 us", "time": "emulated"},
            "rank 1, emulated",
        ),
        ({"backend": "simulated", "emulated": "1 Gbit/s, 200 us"}, "rank 1, simulated"),
    ],
)
def test_what_is_no_machines_own_time_is_said(
    crowded: Trace, tmp_path: Path, facts: dict[str, str], name: str
) -> None:
    """A viewer shows the name of a process beside its rows, so the name must say it."""
    trace = Trace(crowded.spans, 2, facts)
    (together,) = trace.to_chrome(tmp_path / "run.json")
    for path in (together, trace.to_chrome(tmp_path / "folder")[1]):
        events = json.loads(path.read_text())["traceEvents"]
        names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        assert names[-1] == name


def test_no_other_file_is_overwritten(crowded: Trace, tmp_path: Path) -> None:
    """`ddpkit trace run.json --export run.json` must not overwrite the trace."""
    crowded.save(tmp_path / "run.json")
    (tmp_path / "notes.json").write_text("my notes")
    for name in ("run.json", "notes.json"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(
            TraceError, match=rf"{name} exists and is not an earlier export.*give another name"
        ):
            crowded.to_chrome(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_a_file_that_cannot_be_written(crowded: Trace, tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(TraceError, match="cannot write the trace to"):
        crowded.to_chrome(tmp_path / "folder.json")


def test_a_named_group_is_described_as_nccls_are(tmp_path: Path) -> None:
    args = {"group_desc": "tp [0, 1]", "group_size": 2}
    span = Span(0, "comm", "all_reduce", "comm", 0, 5000, 8, group="3", seq=1, args=args)
    (top,) = exported(Trace((span,), 1), tmp_path)
    described = [e["args"] for e in top["traceEvents"] if "Process Group Name" in e["args"]]
    assert described
    for facts in described:
        assert facts["Process Group Name"] == "3"
        assert facts["Process Group Description"] == "tp"
        assert facts["Process Group Ranks"] == "[0, 1]"
