import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace


@pytest.fixture
def trace() -> Trace:
    spans = [
        Span(0, "compute", "Linear", "forward", 2**60 + 1, 2**60 + 9),
        Span(
            1, "comm", "send", "comm", 3, 9, 4, 0, "0", 7, 5, 4, 11, {"tag": 2, "where": "cell π"}
        ),
        Span(1, "step", "step", "step", 0, 10),
    ]
    return Trace(spans, 2, {"backend": "gloo", "cores": 2}, {1: (0, 10)})


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_what_is_saved_is_loaded(trace: Trace, tmp_path: Path, name: str) -> None:
    trace.save(tmp_path / name)
    assert Trace.load(tmp_path / name) == trace
    assert [path.name for path in tmp_path.iterdir()] == [name]


def in_rows(top: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file in format 2."""
    columns = top.pop("columns")
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return {**top, "ddpkit_trace": 2, "fields": [*columns], "spans": rows}


@pytest.mark.parametrize("empty", [False, True])
def test_a_file_of_format_2_is_read(trace: Trace, tmp_path: Path, empty: bool) -> None:
    trace = replace(trace, spans=()) if empty else trace
    path = tmp_path / "t.json"
    trace.save(path)
    assert Trace.load(path) == trace
    path.write_text(json.dumps(in_rows(json.loads(path.read_text()))))
    assert Trace.load(path) == trace


def test_a_file_of_format_1_is_read(trace: Trace, tmp_path: Path) -> None:
    """Such files were written before spans had the time at which they were collected."""
    path = tmp_path / "t.json"
    trace.save(path)
    top = in_rows(json.loads(path.read_text()))
    column = top["fields"].index("collected_ns")
    for row in (top["fields"], *top["spans"]):
        del row[column]
    path.write_text(json.dumps(top | {"ddpkit_trace": 1}))
    spans = tuple(replace(span, collected_ns=None) for span in trace.spans)
    assert Trace.load(path) == replace(trace, spans=spans)


def test_equal_traces_make_equal_files(trace: Trace, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        trace.save(tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x1f\x8b broken",
        gzip.compress(b"{}", mtime=0)[:-9],
        b"\xff\xfe",
        b"[" * 100_000,
        b"{",
    ],
)
def test_damaged_bytes_are_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=r"is not a trace file, or is damaged") as caught:
        Trace.load(path)
    assert "\n" not in str(caught.value)


def set_(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda top: top.__setitem__(key, value)


def set_in_span(column: int, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda top: top["spans"][1].__setitem__(column, value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda top: top.pop("ddpkit_trace"), "neither a trace saved by ddpkit"),
        (set_("ddpkit_trace", 4), "trace format 4 is unknown .* formats 1 to 3"),
        (set_("ddpkit_trace", [1]), "is unknown to this ddpkit"),
        (set_("world_size", True), "number of ranks"),
        (set_("facts", {"a": None}), "facts of the run"),
        (set_("fields", ["rank"]), "list of spans"),
        (set_("bounds", {"5": [0, 1]}), "each rank's begin and end, are damaged"),
        (set_("bounds", {"1": [1, 0]}), "each rank's begin and end, are damaged"),
        (set_in_span(0, 2), "span 1 belongs to rank 2, but there are 2 ranks"),
        (set_in_span(0, 1.5), "the rank of span 1 is damaged: '1.5'"),
        (set_in_span(3, "disk"), "kind 'disk'"),
        (set_in_span(4, None), "the start_ns of span 1 is damaged: .None."),
        (set_in_span(5, 0), "ends before it starts"),
        (set_in_span(12, "late"), "the collected_ns of span 1 is damaged"),
        (set_in_span(13, [1]), "the args of span 1 is damaged"),
        (lambda top: top["spans"][1].pop(), "span 1 does not have 14 fields"),
    ],
)
def test_wrong_content_is_one_sentence(
    trace: Trace, tmp_path: Path, damage: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    path = tmp_path / "t.json"
    trace.save(path)
    top = in_rows(json.loads(path.read_text()))
    damage(top)
    path.write_text(json.dumps(top))
    with pytest.raises(TraceError, match=sentence) as caught:
        Trace.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda columns: columns.pop("peer"), "the columns of the spans are missing or damaged"),
        (lambda columns: columns["peer"].pop(), "the columns of the spans are missing"),
        (lambda columns: columns.update(peer={"0": 1}), "the columns of the spans are missing"),
        (lambda columns: columns.update(more=[0, 0, 0]), "the columns of the spans are missing"),
        (lambda columns: columns["rank"].__setitem__(1, 2), "span 1 belongs to rank 2, but there"),
        (lambda columns: columns["rank"].__setitem__(1, 1.5), "the rank of span 1 is damaged"),
        (lambda columns: columns["kind"].__setitem__(1, "disk"), "kind 'disk'"),
        (lambda columns: columns["end_ns"].__setitem__(1, 0), "ends before it starts"),
        (lambda columns: columns["args"].__setitem__(1, [1]), "the args of span 1 is damaged"),
    ],
)
def test_damaged_columns_are_one_sentence(
    trace: Trace, tmp_path: Path, damage: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    path = tmp_path / "t.json"
    trace.save(path)
    top = json.loads(path.read_text())
    damage(top["columns"])
    path.write_text(json.dumps(top))
    with pytest.raises(TraceError, match=sentence) as caught:
        Trace.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace file"):
        Trace.load(tmp_path / "gone.json")
    with pytest.raises(TraceError, match="the folder .* has no trace file"):
        Trace.load(tmp_path)


def test_a_folder_that_is_not_there_is_one_sentence(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot write the trace"):
        trace.save(tmp_path / "no" / "t.json")
