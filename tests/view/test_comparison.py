"""Runs on one axis: the numbers are those of the traces, and the picture is readable."""

from typing import Any

import pytest
from matplotlib.figure import Figure

from ddpkit.errors import TraceError
from ddpkit.simulate import assign_buckets, replay
from ddpkit.trace import Span, Trace
from ddpkit.view import compare
from ddpkit.view.comparison.figure import draw_comparison
from ddpkit.view.comparison.model import comparison
from ddpkit.view.drawing.steps import example_step
from ddpkit.view.drawing.typical import typical_step
from ddpkit.view.drawing.words import ratio
from tests.view import examples
from tests.view.readable import assert_readable, texts


def stepped(cap: float, ranks: int = 2, link: str = "5 Gbit/s, 200 us", **more: Any) -> Trace:
    """Return a simulated step with this bucket cap."""
    step = example_step()
    return replay(step, ranks, link, assign_buckets(step.gradients, cap), **more).trace()


FLAT, BUCKETED = stepped(1000), stepped(5)
CASES: dict[str, tuple[list[Trace], dict[str, Any]]] = {
    "two": ([FLAT, BUCKETED], {"labels": ["flat", "bucketed"]}),
    "four": (
        [stepped(0.1), FLAT, stepped(25), BUCKETED],
        {"labels": ["naive, one all-reduce for each of the gradients", "flat", "bucketed", "both"]},
    ),
    "all ranks": ([examples.ddp(4, steps=5), examples.ddp(4, steps=6, seed=3)], {"rank": None}),
    "sixteen ranks": ([examples.ddp(8), examples.ddp(8, seed=3)], {"rank": None}),
    "two links": ([stepped(5), stepped(5, link="1 Gbit/s")], {"labels": ["fast", "slow"]}),
    "no compute": ([examples.token_ring(), examples.token_ring(hop_ns=90_000)], {}),
    "no comm": ([examples.compute_only(), BUCKETED], {}),
    "own spans": ([examples.own_spans(), examples.blocked_in_forward()], {"rank": 1}),
    "nothing": ([Trace([], 2), Trace([], 2)], {}),
    "nothing and something": ([Trace([], 2), FLAT], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_picture_is_readable(case: str) -> None:
    traces, more = CASES[case]
    model = comparison(traces, **more)
    figure = draw_comparison(model)
    assert_readable(figure)
    assert {model.title, model.notice} <= {text for text, _ in texts(figure)}


def test_the_ratio_and_the_parts_are_those_of_the_traces() -> None:
    model = comparison([FLAT, BUCKETED], ["flat", "bucketed"])
    before, after = (trace.breakdown()[0] for trace in (FLAT, BUCKETED))
    times = before.step_ns / after.step_ns
    assert times > 1.2
    assert model.title == (
        f"bucketed: {times:.2f}× shorter than flat; "
        f"communication hidden 0% → {100 * after.hidden:.0f}%"
    )
    assert model.notice == (
        f"Notice: exposed communication {before.exposed_ns / 1e6:.0f} ms → "
        f"{after.exposed_ns / 1e6:.0f} ms, compute still 180 ms."
    )
    assert f"{before.step_ns / 1e6:.0f} ms" in model.text
    assert "rank 0      step  compute only" in model.text
    assert model.note in model.text.splitlines()


def test_what_stayed_the_same_is_said_so() -> None:
    assert comparison([FLAT, stepped(1000, link="1 Gbit/s")]).title.endswith(
        "; still 0% of communication hidden"
    )


def test_all_runs_are_drawn_to_one_scale() -> None:
    """An operation has the same width in each run.

    Bars are merged at the scale of the whole picture.
    """
    model = comparison([stepped(0.1), stepped(0.1, link="100 Mbit/s")])
    fast, slow = (side.timeline for side in model.sides)
    assert model.length_ns == slow.length_ns > 5 * fast.length_ns
    alone = comparison([stepped(0.1), stepped(0.1)]).sides[0].timeline
    assert len(fast.rows[0].compute) < len(alone.rows[0].compute)


def test_all_ranks_are_measured_by_the_slowest() -> None:
    slow = stepped(5, slow={1: 1.5})
    model = comparison([BUCKETED, slow], rank=None)
    assert [len(side.timeline.rows) for side in model.sides] == [2, 2]
    longest = max(part.step_ns for part in slow.breakdown().values())
    assert model.sides[1].length_ns == longest
    assert "longer than run 1" in model.title
    assert "on the slowest rank" in model.notice
    assert "run 2, rank 1" in model.text


def test_a_rank_that_is_done_early_is_not_the_slowest() -> None:
    def staircase(*ends: int) -> Trace:
        spans = [Span(r, "compute", "work", "forward", 0, end) for r, end in enumerate(ends)]
        return Trace(spans, len(ends))

    before, after = staircase(2_000_000, 10_000_000), staircase(6_000_000, 6_000_000)
    model = comparison([before, after], rank=None)
    assert model.notice == "Notice on the slowest rank: compute 10 ms → 6.0 ms."


def test_one_rank_is_drawn_from_its_own_start() -> None:
    trace = examples.ddp(3, steps=5)
    side = comparison([trace, trace], rank=2, step=3).sides[0]
    (row,) = side.timeline.rows
    start, end = trace.step(3).window_of(2)
    assert (row.rank, row.window) == (2, (0, end - start))
    assert row.breakdown == trace.step(3).breakdown()[2]


def test_the_typical_step_is_the_median_after_the_warm_up() -> None:
    trace = examples.ddp(2, steps=8)
    lengths = {k: trace.step(k).breakdown()[0].step_ns for k in range(3, 8)}
    assert lengths[typical_step(trace, 0)] == sorted(lengths.values())[2]
    assert typical_step(examples.ddp(2, steps=2), 0) == 1
    assert f"Step {typical_step(trace, 0)} on" in comparison([trace, trace]).text


def test_runs_without_steps_are_compared_whole() -> None:
    ring = examples.token_ring()
    model = comparison([ring, examples.ddp(2, steps=4)])
    assert model.whole == "run"
    assert model.sides[0].length_ns == ring.end_ns - ring.start_ns


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (142, 100, "1.42× shorter than"),
        (100, 142, "1.42× longer than"),
        (2500, 100, "25× shorter than"),
        (1000, 1004, "as long as"),
        (0, 0, "as long as"),
        (0, 5, "longer than"),
    ],
)
def test_ratio(before: int, after: int, said: str) -> None:
    assert ratio(before, after) == said


def test_wrong_arguments_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="two runs or more"):
        compare(FLAT)
    with pytest.raises(ValueError, match="3 labels for 2 runs"):
        compare(FLAT, FLAT, labels=["a", "b", "c"])
    with pytest.raises(TraceError, match="no rank 2: this trace has ranks 0 to 1"):
        compare(FLAT, FLAT, rank=2)
    with pytest.raises(TraceError, match="no step 1"):
        compare(FLAT, FLAT, step=1)


def test_it_is_shown_as_show_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(compare(FLAT, BUCKETED, labels=["flat", "bucketed"]), Figure)
    said = capsys.readouterr().out
    assert said == comparison([FLAT, BUCKETED], ["flat", "bucketed"]).text + "\n"
