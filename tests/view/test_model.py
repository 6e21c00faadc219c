import re
from itertools import chain

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from ddpkit.view import timeline_model
from tests.view import examples


def test_numbers_come_from_the_spans_at_every_width() -> None:
    trace = examples.many_spans(4_000)
    fine, coarse = timeline_model(trace, pixels=5_000), timeline_model(trace, pixels=50)
    assert fine.text == coarse.text
    assert {row.rank: row.breakdown for row in coarse.rows} == trace.breakdown()
    assert len(coarse.rows[0].compute) <= 51 < len(fine.rows[0].compute)


def test_bars_lie_inside_the_picture_and_the_step() -> None:
    model = timeline_model(examples.ddp(3, steps=3), step=1)
    assert model.whole == "step"
    for row in model.rows:
        lo, hi = row.window
        for bar in chain(row.compute, *row.lanes, row.overlap, row.exposed):
            assert 0 <= lo <= bar.start <= bar.end <= hi <= model.length_ns


def test_strips_add_up_to_the_parts() -> None:
    for row in timeline_model(examples.ddp(2), step=0).rows:
        assert sum(bar.end - bar.start for bar in row.overlap) == row.breakdown.overlapped_ns
        assert sum(bar.end - bar.start for bar in row.exposed) == row.breakdown.exposed_ns


def test_a_bar_is_split_where_the_last_peer_came() -> None:
    ops = [
        Span(0, "comm", "all_reduce", "comm", 0, 100, seq=1, ready_ns=60),
        Span(1, "comm", "all_reduce", "comm", 60, 100, seq=1, ready_ns=60),
    ]
    first, second = timeline_model(Trace(ops, 2)).rows
    assert [(b.start, b.end, b.kind) for b in first.lanes[0]] == [
        (0, 60, "waiting"),
        (60, 100, "moving"),
    ]
    assert "waits for rank 1" in first.lanes[0][0].texts
    assert [(b.start, b.end, b.kind) for b in second.lanes[0]] == [(60, 100, "moving")]
    assert (first.waiting_ns, second.waiting_ns) == (60, 0)


def test_messages_are_labelled_with_their_peer_and_drawn_as_arrows() -> None:
    model = timeline_model(examples.token_ring(4, laps=1))
    texts = {text for row in model.rows for bar in row.lanes[0] for text in bar.texts}
    assert {"→1", "←0", "send →1", "recv ←0"} <= texts
    assert [(m.source[0], m.target[0]) for m in model.messages] == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_arrows_are_left_out_where_they_would_not_help() -> None:
    assert timeline_model(examples.own_spans()).messages == []  # compute lies between the lanes
    # more messages than an arrow each can show
    assert timeline_model(examples.token_ring(4, laps=20)).messages == []
    at_once = [(rank, 1 - rank, n) for rank in range(2) for n in range(4)]
    pairs = [
        Span(rank, "comm", name, "comm", n, 90 + n, 4, peer, args={"tag": n})
        for rank, peer, n in at_once
        for name in ("isend", "irecv")
    ]
    # more arrows at one time than can be told apart
    assert timeline_model(Trace(pairs, 2)).messages == []
    assert len(timeline_model(Trace(pairs[:1] + pairs[9:10], 2)).messages) == 1


def test_an_arrow_begins_when_the_bytes_move() -> None:
    spans = [
        Span(0, "comm", "send", "comm", 0, 90, 4, 1, ready_ns=50),
        Span(1, "comm", "recv", "comm", 50, 100, 4, 0, ready_ns=50),
    ]
    (arrow,) = timeline_model(Trace(spans, 2)).messages
    assert (arrow.source, arrow.target) == ((0, 50), (1, 100))


def test_text_states_the_finding_and_the_four_parts_of_every_rank() -> None:
    ms = 1_000_000
    trace = Trace(
        [
            Span(0, "compute", "b", "backward", 0, 60 * ms),
            Span(0, "comm", "all_reduce", "comm", 40 * ms, 80 * ms, 4_000_000, seq=1),
            Span(0, "compute", "SGD", "optimizer", 90 * ms, 100 * ms),
        ],
        1,
        {"backend": "gloo", "device": "cpu", "emulated": "1 Gbit/s, 200 us"},
    )
    assert timeline_model(trace, step=0).text.splitlines() == [
        "Step 0 on 1 rank, 1 all-reduce of 4 MB (gloo, CPU, emulated link)",
        "Communication hidden behind compute: 50%.   Most exposed: rank 0, 20 ms of 100 ms.",
        "          step  compute only  overlapped  exposed comm        idle  hidden  waiting",
        "rank 0  100 ms    50 ms  50%  20 ms  20%    20 ms  20%  10 ms  10%     50%     0 ms",
        "Emulated link: 1 Gbit/s, 200 us.",
        "rank 0: all_reduce ×1, 4 MB",
    ]


def test_messages_say_who_sent_what_and_idle_is_explained_where_it_is_shown() -> None:
    model = timeline_model(examples.token_ring(3, laps=2))
    text = model.text
    assert "6 messages of 4 B" in text
    assert '"idle" is all time outside communication' in model.note
    assert "idle" not in text, "its table has no such column"
    assert "rank 2: sent 2 messages, 8 B to rank 0" in text
    assert "Most waited for: rank" in text


def test_what_is_done_is_not_drawn_as_communication_until_its_wait() -> None:
    """Regression: 4 bytes on a link of 1 ms appeared as a bar of 105 ms."""
    model = timeline_model(examples.done_early())
    ms = 1_000_000
    lanes = [[(bar.kind, bar.start, bar.end) for bar in lane] for lane in model.rows[0].lanes]
    assert lanes == [
        [("moving", 0, ms), ("done", ms, 100 * ms)],
        [("moving", 49 * ms, 51 * ms), ("done", 51 * ms, 100 * ms)],
    ]
    parts = model.rows[0].breakdown
    assert (parts.comm_ns, parts.overlapped_ns, parts.idle_ns) == (3 * ms, 3 * ms, 0)
    assert parts.step_ns == 100 * ms
    assert all(bar.kind != "done" for lane in model.rows[1].lanes for bar in lane)


def test_text_of_compute_alone() -> None:
    text = timeline_model(examples.compute_only()).text
    assert "No communication. Compute fills 96% of the time." in text
    assert "no comm" in text


def test_an_empty_trace_is_a_clear_sentence() -> None:
    assert timeline_model(Trace([], 2)).text == (
        "Run on 2 ranks\nNothing was recorded: no compute and no communication."
    )


def test_instants_alone_take_no_time_and_break_nothing() -> None:
    model = timeline_model(Trace([Span(0, "comm", "barrier", "comm", 5, 5)], 1))
    assert model.length_ns == 0
    assert re.search(r"^rank 0 +0 ms +0 ms +0 ms$", model.text, re.MULTILINE)


def test_steps_count_from_the_end_and_are_named_from_the_start() -> None:
    trace = examples.ddp(2, steps=3)
    assert timeline_model(trace, -1).title == timeline_model(trace, 2).title
    assert timeline_model(trace, -1).title.startswith("Step 2 on 2 ranks")
    with pytest.raises(TraceError, match="no step 3"):
        timeline_model(trace, 3)


def test_waiting_in_a_step_looks_beyond_it_for_its_peer() -> None:
    """The send was posted in step 0; the matching recv is in step 1."""
    spans = []
    for rank in range(2):
        for at in (0, 100):
            spans.append(Span(rank, "step", "step", "step", at, at + 100))
    spans += [
        Span(0, "comm", "isend", "comm", 90, 95, 4, 1),
        Span(0, "comm", "isend", "comm", 150, 155, 4, 1),
        Span(1, "comm", "irecv", "comm", 110, 120, 4, 0),
        Span(1, "comm", "irecv", "comm", 130, 160, 4, 0, ready_ns=150),
    ]
    model = timeline_model(Trace(spans, 2), step=1)
    assert [(m.source[1], m.target[1]) for m in model.messages] == [(50, 60)]
    assert "Most waited for: rank 0" in model.text


def test_an_operation_of_a_named_group_says_so() -> None:
    spans = [
        Span(rank, "comm", "all_reduce", "comm", 0, 9_000, group="3", seq=1, ready_ns=ready,
             args={"group_desc": "tp [0, 1]", "group_size": 2})
        for rank, ready in ((0, 0), (1, 0))
    ]  # fmt: skip
    for row in timeline_model(Trace(spans, 2)).rows:
        ((bar,),) = row.lanes
        assert bar.texts == ("all_reduce of group tp [0, 1]", "all_reduce tp", "tp")
