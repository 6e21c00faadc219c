import dataclasses

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace


def two_steps(rank: int, shift: int = 0, *, marked: bool = False) -> list[Span]:
    """Return two steps of 100 ns after a first broadcast, for one rank."""
    spans = [Span(rank, "comm", "broadcast", "comm", shift, shift + 5, 8)]
    for start in (shift + 10, shift + 110):
        spans += [
            Span(rank, "compute", "layer", "forward", start, start + 30),
            Span(rank, "compute", "backward", "backward", start + 30, start + 80),
            Span(rank, "comm", "all_reduce", "comm", start + 70, start + 90, 40),
            Span(rank, "compute", "SGD", "optimizer", start + 90, start + 100),
        ]
        if marked:
            spans.append(Span(rank, "step", "step", "step", start, start + 95))
    return spans


def test_steps_end_with_the_optimizer() -> None:
    trace = Trace(two_steps(0) + two_steps(1, shift=7), 2)
    assert trace.steps == 2
    assert trace.step(0).window_of(0) == (10, 110)
    assert trace.step(1).window_of(1) == (117, 217)
    assert (trace.step(1).start_ns, trace.step(1).end_ns) == (110, 217)
    assert {span.name for span in trace.step(0).spans} == {"layer", "backward", "all_reduce", "SGD"}


def test_marked_steps_come_before_optimizer_spans() -> None:
    trace = Trace(two_steps(0, marked=True), 1)
    assert trace.steps == 2
    assert trace.step(1).window_of(0) == (110, 205)


def test_steps_count_from_the_end_too() -> None:
    trace = Trace(two_steps(0), 1)
    assert trace.step(-1) == trace.step(1)


@pytest.mark.parametrize(("k", "has"), [(2, "steps 0 to 1"), (-3, "steps 0 to 1")])
def test_a_step_out_of_range_says_which_there_are(k: int, has: str) -> None:
    with pytest.raises(TraceError, match=f"no step {k}: this trace has {has}"):
        Trace(two_steps(0), 1).step(k)


def test_a_trace_without_steps_says_so() -> None:
    with pytest.raises(TraceError, match="has no steps"):
        Trace([Span(0, "compute", "f", "forward", 0, 5)], 1).step(0)


def test_a_rank_without_the_step_has_an_empty_window() -> None:
    step = Trace(two_steps(0), 2).step(0)
    assert step.window_of(1) == (0, 0)
    assert step.breakdown()[1].step_ns == 0
    assert step.start_ns == 10


def test_traffic_belongs_to_the_step_it_was_posted_in() -> None:
    late = Span(0, "comm", "send", "comm", 105, 130, bytes=3, peer=1)
    trace = Trace([*two_steps(0), late], 2)
    assert [trace.step(k).traffic.messages(0) for k in range(2)] == [1, 0]
    assert late in trace.step(1).spans  # the end of the message takes time in step 1


def test_an_instant_belongs_to_one_window() -> None:
    trace = Trace([Span(0, "comm", "send", "comm", 10, 10, peer=0)], 1)
    assert len(trace.window(0, 10).spans) == 0
    assert len(trace.window(10, 20).spans) == 1


def test_a_trace_is_frozen_and_takes_any_iterable() -> None:
    trace = Trace(iter(two_steps(0)), 1)  # type: ignore[arg-type]
    assert len(trace.spans) == 9
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.world_size = 2  # type: ignore[misc]


def test_repr_says_what_it_holds() -> None:
    assert repr(Trace(two_steps(0), 1)) == "<Trace of 1 rank: 9 spans, 2 steps, 0.00021 ms>"
    assert repr(Trace([], 2)) == "<Trace of 2 ranks: 0 spans, 0 ms>"


def test_a_span_that_cannot_be_is_refused() -> None:
    with pytest.raises(TraceError, match="ends before it starts"):
        Span(0, "comm", "send", "comm", 5, 4)
    with pytest.raises(TraceError, match="kind 'network'"):
        Span(0, "comm", "send", "network", 4, 5)
