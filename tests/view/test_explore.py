"""What the canvas is given: every span, in its lane, exactly. What it does: tests/notebook."""

import zlib
from array import array
from itertools import pairwise

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from ddpkit.view import explore, timeline_model
from ddpkit.view.explorer.scene import KINDS, Scene, scene_of
from tests.view import examples

TRACES = {
    "ddp": examples.ddp(3, steps=2),
    "token ring": examples.token_ring(),
    "own spans": examples.own_spans(),
    "blocked in forward": examples.blocked_in_forward(),
}


def spans(scene: Scene) -> list[tuple[int, str, int, int]]:
    """Rank, name, start and end in ns of every entry."""
    return [
        (row.rank, scene.names[scene.name[i]], scene.start[i] * scene.tick_ns,
         scene.end[i] * scene.tick_ns)
        for row in scene.rows
        for i in range(row.first, row.last)
    ]  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_every_span_is_there_once(name: str) -> None:
    trace = TRACES[name]
    shown = [each for each in spans(scene_of(trace)) if each[1] != "exposed communication"]
    expected = [
        (s.rank, s.name, s.start_ns - trace.start_ns, s.end_ns - trace.start_ns)
        for s in trace.spans
        if s.kind != "step"
    ]
    # A bucket's number stands behind the name.
    assert sorted((r, n.split(" b")[0], a, b) for r, n, a, b in shown) == sorted(expected)


@pytest.mark.parametrize("name", TRACES)
def test_rows_are_in_order_and_lanes_do_not_overlap(name: str) -> None:
    scene = scene_of(TRACES[name])
    assert [row.first for row in scene.rows] == [0, *(row.last for row in scene.rows[:-1])]
    assert all(a.top + a.height < b.top for a, b in pairwise(scene.rows))
    assert [row.title for row in scene.rows if row.title] == [
        f"rank {rank}" for rank in TRACES[name].ranks
    ]
    for row in scene.rows:
        inside = range(row.first, row.last)
        assert sorted(scene.start[i] for i in inside) == [scene.start[i] for i in inside]
        assert [scene.reach[i] for i in inside] == [
            max(scene.end[row.first : i + 1]) for i in inside
        ]
        if row.name != "compute":
            assert all(scene.end[i] <= scene.start[i + 1] for i in inside[:-1])


def test_exposed_communication_is_as_long_as_the_breakdown_says() -> None:
    trace = TRACES["ddp"]
    found = dict.fromkeys(trace.ranks, 0)
    for rank, name, start, end in spans(scene_of(trace)):
        found[rank] += end - start if name == "exposed communication" else 0
    assert found == {rank: parts.exposed_ns for rank, parts in trace.breakdown().items()}


def test_hovering_knows_bytes_peer_and_waiting() -> None:
    scene = scene_of(examples.token_ring(3, laps=1))
    i = next(i for i, name in enumerate(scene.name) if scene.names[name] == "recv")
    recv = next(span for span in examples.token_ring(3, laps=1).of(0) if span.name == "recv")
    start = examples.token_ring(3, laps=1).start_ns
    assert (scene.nbytes[i], scene.peer[i], KINDS[scene.kind[i]]) == (4, 2, "moving")
    assert scene.ready[i] == (recv.ready_ns or 0) - start > scene.start[i]


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
    scene = scene_of(trace, 1)
    assert (0, "all_reduce", -10, 30) in spans(scene)
    assert (0, "f", 50, 60) in spans(scene)
    assert (0, "f", -90, -80) not in spans(scene)
    assert scene.described()["extent"] == [-10, 100]
    assert scene.described()["length"] == 100


def test_an_hour_is_counted_in_longer_ticks() -> None:
    hour = 3_600_000_000_000
    scene = scene_of(Trace([Span(0, "compute", "f", "forward", 5, hour)], 1))
    assert scene.tick_ns > 1
    assert scene.end[0] * scene.tick_ns == pytest.approx(hour, abs=2 * scene.tick_ns)


def test_the_columns_unpack_as_they_are_described() -> None:
    scene = scene_of(TRACES["ddp"])
    packed, said = zlib.decompress(scene.packed()), scene.described()
    at = 0
    for name, kind in said["columns"]:
        size = int(kind[1])
        assert at % size == 0  # or the browser refuses
        column = array({"f8": "d", "i4": "i", "u4": "I", "u1": "B"}[kind])
        column.frombytes(packed[at : at + size * said["count"]])
        assert column == getattr(scene, name)
        at += size * said["count"]
    assert at == len(packed)


def test_nothing_and_an_instant_can_be_explored() -> None:
    assert scene_of(Trace([], 2)).described()["length"] == 1
    assert len(scene_of(Trace([Span(0, "comm", "barrier", "comm", 5, 5)], 2)).start) == 1
    with pytest.raises(TraceError, match="no step 9"):
        explore(examples.ddp(2), step=9)


def test_a_notebook_gets_picture_text_and_canvas(
    displayed: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    view = explore(TRACES["ddp"], step=1)
    assert [type(each).__name__ for each in displayed] == ["Image", "dict", "dict"]
    assert capsys.readouterr().out == timeline_model(TRACES["ddp"], 1).text + "\n"
    assert view.controls.scene["title"] == timeline_model(TRACES["ddp"], 1).title
    assert "export default" in str(view.controls._esm)
