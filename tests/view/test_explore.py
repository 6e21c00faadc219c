"""The data for the canvas: every span, exactly, in its lane. tests/notebook tests the canvas."""

import random
import zlib
from itertools import pairwise

import numpy as np
import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from ddpkit.view import explore, timeline_model
from ddpkit.view.explorer.model import KINDS, SpanColumns, span_columns
from tests.view import examples

TRACES = {
    "ddp": examples.ddp(3, steps=2),
    "token ring": examples.token_ring(),
    "own spans": examples.own_spans(),
    "blocked in forward": examples.blocked_in_forward(),
}


def spans(columns: SpanColumns) -> list[tuple[int, str, int, int]]:
    """Return rank, name, start and end in ns of every entry."""
    return [
        (row.rank, columns.names[columns.name[i]], columns.start[i] * columns.tick_ns,
         columns.end[i] * columns.tick_ns)
        for row in columns.rows
        for i in range(row.first, row.last)
    ]  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_every_span_is_there_once(name: str) -> None:
    trace = TRACES[name]
    shown = [each for each in spans(span_columns(trace)) if each[1] != "exposed communication"]
    expected = [
        (s.rank, s.name, s.start_ns - trace.start_ns, s.end_ns - trace.start_ns)
        for s in trace.spans
        if s.kind != "step"
    ]
    # the number of a bucket follows the name
    assert sorted((r, n.split(" b")[0], a, b) for r, n, a, b in shown) == sorted(expected)


@pytest.mark.parametrize("name", TRACES)
def test_rows_are_in_order_and_lanes_do_not_overlap(name: str) -> None:
    columns = span_columns(TRACES[name])
    assert [row.first for row in columns.rows] == [0, *(row.last for row in columns.rows[:-1])]
    assert all(a.top + a.height < b.top for a, b in pairwise(columns.rows))
    assert [row.title for row in columns.rows if row.title] == [
        f"rank {rank}" for rank in TRACES[name].ranks
    ]
    for row in columns.rows:
        inside = range(row.first, row.last)
        assert sorted(columns.start[i] for i in inside) == [columns.start[i] for i in inside]
        assert [columns.reach[i] for i in inside] == [
            max(columns.end[row.first : i + 1]) for i in inside
        ]
        if row.name != "compute":
            assert all(columns.end[i] <= columns.start[i + 1] for i in inside[:-1])


def test_exposed_communication_is_as_long_as_the_breakdown_says() -> None:
    trace = TRACES["ddp"]
    found = dict.fromkeys(trace.ranks, 0)
    for rank, name, start, end in spans(span_columns(trace)):
        found[rank] += end - start if name == "exposed communication" else 0
    assert found == {rank: parts.exposed_ns for rank, parts in trace.breakdown().items()}


def test_hovering_knows_bytes_peer_and_waiting() -> None:
    columns = span_columns(examples.token_ring(3, laps=1))
    i = next(i for i, name in enumerate(columns.name) if columns.names[name] == "recv")
    recv = next(span for span in examples.token_ring(3, laps=1).of(0) if span.name == "recv")
    start = examples.token_ring(3, laps=1).start_ns
    assert (columns.nbytes[i], columns.peer[i], KINDS[columns.kind[i]]) == (4, 2, "moving")
    assert columns.ready[i] == (recv.ready_ns or 0) - start > columns.start[i]


def test_hovering_knows_when_it_was_collected() -> None:
    """The bar ends when the operation is done.

    Its lane stays occupied until the rank has waited.
    """
    trace = examples.done_early()
    columns = span_columns(trace)
    first = columns.rows[1]
    assert (first.name, first.last - first.first) == ("comm", 1)
    ms = 1_000_000
    assert (columns.end[first.first], columns.over[first.first]) == (ms, 100 * ms)
    assert columns.reach[first.first] == 100 * ms
    assert columns.described()["extent"] == [0, 100 * ms]


def test_hovering_knows_the_name_of_a_group() -> None:
    named = Span(
        0, "comm", "all_reduce", "comm", 0, 9, 4, group="3", args={"group_desc": "tp [0, 1]"}
    )
    columns = span_columns(Trace([named], 1))
    assert "all_reduce of group tp [0, 1]" in columns.names


def test_a_step_keeps_what_reaches_into_it_at_full_length() -> None:
    trace = Trace(
        [
            Span(0, "step", "step", "step", 0, 100),
            Span(0, "step", "step", "step", 100, 200),
            Span(0, "comm", "all_reduce", "comm", 90, 130, 4),
            Span(0, "compute", "f", "forward", 10, 20),
            Span(0, "compute", "f", "forward", 150, 160),
        ],
        1,
    )
    columns = span_columns(trace, 1)
    assert (0, "all_reduce", -10, 30) in spans(columns)
    assert (0, "f", 50, 60) in spans(columns)
    assert (0, "f", -90, -80) not in spans(columns)
    assert columns.described()["extent"] == [-10, 100]
    assert columns.described()["length"] == 100


def test_an_hour_is_counted_in_longer_ticks() -> None:
    hour = 3_600_000_000_000
    columns = span_columns(Trace([Span(0, "compute", "f", "forward", 5, hour)], 1))
    assert columns.tick_ns > 1
    assert columns.end[0] * columns.tick_ns == pytest.approx(hour, abs=2 * columns.tick_ns)


def test_the_columns_unpack_as_they_are_described() -> None:
    columns = span_columns(TRACES["ddp"])
    packed, said = zlib.decompress(columns.packed()), columns.described()
    at, sent = 0, {}
    for name, kind in said["columns"]:
        size = int(kind[1])
        places = np.frombuffer(packed[at : at + size * said["count"]], "u1")
        sent[name] = places.reshape(size, -1).T.copy().view(kind)[:, 0]
        at += size * said["count"]
    assert at == len(packed)
    for row in columns.rows:
        here = slice(row.first, row.last)
        sent["start"][here] = np.cumsum(sent["start"][here])
    sent["end"] += sent["start"]
    sent["over"] += sent["end"]
    sent["ready"] += sent["start"]
    for name, column in sent.items():
        assert column.tolist() == list(getattr(columns, name)), name


def test_a_span_takes_few_bytes() -> None:
    """Regression: the page of a million spans took 25 MB; it holds these bytes as base64."""
    chance, at, spans = random.Random(0), 0, []
    for k in range(20_000):
        start, at = at, at + chance.randrange(1_000, 1_000_000)
        spans.append(Span(0, "compute", f"layer {k % 96}", "forward", start, at))
        at += chance.randrange(0, 2_000)
    packed = span_columns(Trace(spans, 1)).packed()
    assert len(packed) / len(spans) < 7.5


def test_nothing_and_an_instant_can_be_explored() -> None:
    assert span_columns(Trace([], 2)).described()["length"] == 1
    assert len(span_columns(Trace([Span(0, "comm", "barrier", "comm", 5, 5)], 2)).start) == 1
    with pytest.raises(TraceError, match="no step 9"):
        explore(examples.ddp(2), step=9)


def test_a_notebook_gets_picture_text_and_canvas(
    displayed: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    view = explore(TRACES["ddp"], step=1)
    assert [type(each).__name__ for each in displayed] == ["dict", "Image", "dict", "dict"]
    assert capsys.readouterr().out == timeline_model(TRACES["ddp"], 1).text + "\n"
    assert view.controls.picture["title"] == timeline_model(TRACES["ddp"], 1).title
    assert "export default" in str(view.controls._esm)
