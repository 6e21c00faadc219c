"""The four parts, compared with a brute-force count of every nanosecond."""

from hypothesis import given
from hypothesis import strategies as st

from ddpkit.trace import Breakdown, Span, Trace
from tests.properties import examples

KINDS = ("forward", "backward", "optimizer", "span", "comm")


@st.composite
def span(draw: st.DrawFn, rank: int) -> Span:
    kind = draw(st.sampled_from(KINDS))
    start, end = sorted(draw(st.tuples(st.integers(0, 40), st.integers(0, 40))))
    if kind != "comm":
        return Span(rank, "compute", kind, kind, start, end)
    blocked = draw(st.none() | st.integers(start, end))
    return Span(rank, "comm", "all_reduce", kind, start, end, blocked_ns=blocked)


def oracle(trace: Trace, rank: int) -> Breakdown:
    counts = {(True, False): 0, (True, True): 0, (False, True): 0, (False, False): 0}
    spans = trace.of(rank)
    for ns in range(*trace.window_of(rank)):
        now = [span for span in spans if span.start_ns <= ns < span.end_ns]
        blocked = any(s.blocked_ns is not None and s.blocked_ns <= ns for s in now if s.is_comm)
        computes = any(span.is_compute for span in now) and not blocked
        counts[computes, any(span.is_comm for span in now)] += 1
    return Breakdown(*counts.values())


@examples(200)
@given(
    ranks=st.tuples(*(st.lists(span(rank), max_size=12) for rank in range(3))),
    moments=st.tuples(st.integers(-5, 45), st.integers(-5, 45)),
)
def test_agrees_with_the_oracle_and_adds_up(
    ranks: tuple[list[Span], ...], moments: tuple[int, int]
) -> None:
    whole = Trace([span for spans in ranks for span in spans], 3)
    for trace in (whole, whole.window(*sorted(moments))):
        for rank, parts in trace.breakdown().items():
            window = trace.window_of(rank)
            assert parts == oracle(trace, rank)
            assert parts.step_ns == window[1] - window[0]


def test_hidden_is_the_overlapped_fraction_of_communication() -> None:
    assert Breakdown(50, 30, 10, 10).hidden == 0.75
    assert Breakdown(50, 0, 0, 10).hidden is None


def test_parts_are_exact_for_times_beyond_the_precision_of_floats() -> None:
    base = 2**60 + 1
    trace = Trace(
        [
            Span(0, "compute", "b", "backward", base, base + 3),
            Span(0, "comm", "all_reduce", "comm", base + 2, base + 7),
        ],
        1,
    )
    assert trace.breakdown() == {0: Breakdown(2, 1, 4, 0)}


def test_a_blocking_call_inside_a_compute_span_hides_nothing() -> None:
    trace = Trace(
        [
            Span(0, "compute", "exchange", "span", 0, 100),
            Span(0, "comm", "recv", "comm", 20, 80, blocked_ns=20),
        ],
        1,
    )
    assert trace.breakdown() == {0: Breakdown(40, 0, 60, 0)}


def test_a_wait_after_the_end_blocks_nothing() -> None:
    spans = [
        Span(0, "compute", "b", "backward", 0, 100),
        Span(0, "comm", "all_reduce", "comm", 20, 80, blocked_ns=90),
    ]
    assert Trace(spans, 1).breakdown() == {0: Breakdown(40, 60, 0, 0)}


def test_a_rank_without_spans_is_idle_for_as_long_as_the_others_work() -> None:
    trace = Trace([Span(0, "compute", "f", "forward", 10, 30)], 2)
    assert trace.breakdown()[1] == Breakdown(0, 0, 0, 20)


def test_nothing_recorded_takes_no_time() -> None:
    assert Trace([], 2).breakdown() == dict.fromkeys(range(2), Breakdown(0, 0, 0, 0))
