import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ddpkit.trace import Span
from ddpkit.view.drawing.lanes import Bar, assign_lanes, label_runs, merge_small, nearby
from tests.properties import examples


def op(start: int, end: int) -> Span:
    return Span(0, "comm", "all_reduce", "comm", start, end)


OPS = st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda at: op(at[0], sum(at)))


@examples(30)
@given(spans=st.lists(OPS, max_size=25))
def test_no_two_spans_of_a_lane_overlap_and_no_lane_is_wasted(spans: list[Span]) -> None:
    lanes = assign_lanes(spans)
    assert sorted(id(span) for lane in lanes for span in lane) == sorted(map(id, spans))
    for lane in lanes:
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(lane))
    at_once = [sum(s.start_ns <= ns < s.end_ns for s in spans) for ns in range(70)]
    assert len(lanes) == max(at_once)


def test_operations_in_sequence_share_the_top_lane() -> None:
    assert assign_lanes([op(0, 5), op(5, 9), op(12, 15)]) == [[op(0, 5), op(5, 9), op(12, 15)]]


def test_wide_bars_are_left_alone() -> None:
    rough = [(0, 40, "forward", ("f",)), (40, 90, "backward", ())]
    assert merge_small(rough, pixel_ns=10) == [
        Bar(0, 40, "forward", ("f",)),
        Bar(40, 90, "backward"),
    ]


def test_a_pixel_shows_the_kind_that_fills_most_of_it() -> None:
    rough = [(0, 2, "forward", ()), (2, 6, "backward", ()), (7, 8, "forward", ())]
    assert merge_small(rough, pixel_ns=10) == [Bar(0, 8, "backward", count=3)]


def test_a_strip_shows_nothing_where_it_fills_less_than_half_a_pixel() -> None:
    sparse = [
        (10 * n + shift, 10 * n + shift + 1, "exposed", ()) for n in range(9) for shift in (0, 5)
    ]
    assert merge_small(sparse, pixel_ns=10, least=0.5) == []
    dense = [
        (10 * n + shift, 10 * n + shift + 4, "exposed", ()) for n in range(9) for shift in (0, 5)
    ]
    assert [bar.count for bar in merge_small(dense, pixel_ns=10, least=0.5)] == [18]


def test_a_lone_small_bar_stays() -> None:
    assert merge_small([(3, 4, "moving", ())], pixel_ns=100, least=0.5) == [Bar(3, 4, "moving")]


def test_100_000_spans_become_at_most_a_bar_a_pixel() -> None:
    rng = random.Random(0)
    rough = [(n, n + 1, rng.choice(("forward", "backward")), ()) for n in range(100_000)]
    merged = merge_small(rough, pixel_ns=100)
    assert len(merged) <= 1000
    assert sum(bar.count for bar in merged) == 100_000


def labels(bars: list[Bar], covered: list[Bar] | None = None) -> list[tuple[int, int, str]]:
    runs = label_runs(bars, {"forward": ("fwd",)}, gap=5, covered=covered or [])
    return [(run.start, run.end, *run.texts) for run in runs]


def test_neighbours_of_one_kind_get_one_label() -> None:
    bars = [Bar(0, 10, "forward"), Bar(11, 20, "forward"), Bar(20, 30, "backward"),
            Bar(30, 40, "forward"), Bar(90, 99, "forward")]  # fmt: skip
    assert labels(bars) == [(0, 20, "fwd"), (30, 40, "fwd"), (90, 99, "fwd")]


def test_bars_of_other_kinds_keep_their_own_texts() -> None:
    assert labels([Bar(0, 9, "span", ("mine",)), Bar(9, 12, "span")]) == [(0, 9, "mine")]


def test_a_label_goes_where_it_is_not_covered() -> None:
    covered = [Bar(n, n + 6, "exposed") for n in (3, 30, 60, 90)]
    assert labels([Bar(0, 50, "forward")], covered) == [(9, 30, "fwd")]
    assert labels([Bar(61, 65, "forward")], covered) == []


def test_gaps_that_cannot_be_seen_are_joined_and_not_counted() -> None:
    assert nearby([(0, 40), (42, 80), (82, 120)], gap=3) == [(0, 120, 116)]
    assert nearby([(0, 40), (44, 80)], gap=3) == [(0, 40, 40), (44, 80, 36)]


def test_what_is_half_empty_is_not_joined() -> None:
    """The joined bar would look full."""
    assert nearby([(0, 2), (4, 6), (8, 10)], gap=3) == [(0, 2, 2), (4, 6, 2), (8, 10, 2)]
