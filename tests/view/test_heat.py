"""Steps by rank: the numbers, the words about them, and the picture."""

import random

import pytest
from matplotlib.figure import Figure

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace, match_peers
from ddpkit.view import heat_map
from ddpkit.view.heat.figure import draw_heat
from ddpkit.view.heat.model import CHANCE, COLUMNS, heat_of
from ddpkit.view.timeline.model import timeline_model
from tests.view import examples
from tests.view.readable import assert_readable, texts

MS = examples.MS


def steps(*ranks: list[int], tail: int = 2) -> Trace:
    """Return ranks that compute for these ms a step, all reduce together for 1 ms, and step."""
    spans: list[Span] = []
    at = [0] * len(ranks)
    for k, computed in enumerate(zip(*ranks, strict=True)):
        posted = [begin + ms * MS for begin, ms in zip(at, computed, strict=True)]
        done = max(posted) + MS
        for rank, post in enumerate(posted):
            end = done + tail * MS
            spans += [
                Span(rank, "step", "step", "step", at[rank], end),
                Span(rank, "compute", "b", "backward", at[rank], post),
                Span(rank, "comm", "all_reduce", "comm", post, done, 8, seq=k, blocked_ns=post),
                Span(rank, "compute", "SGD", "optimizer", done, end),
            ]
            at[rank] = end
    return Trace(match_peers(spans), len(ranks), examples.FACTS)


def test_took_and_waited_are_those_of_every_step() -> None:
    trace = steps([10, 10, 10], [10, 30, 12])
    heat = heat_of(trace)
    assert heat.took == ((13 * MS, 33 * MS, 15 * MS),) * 2
    assert heat.waited == ((0, 20 * MS, 2 * MS), (0, 0, 0))
    for k in range(3):
        parts = trace.step(k).breakdown()
        assert [row[k] for row in heat.took] == [parts[rank].step_ns for rank in (0, 1)]


def test_the_straggler_is_named() -> None:
    heat = heat_of(steps([10] * 6, [11] * 6, [25] * 6))
    lost = 6 * (15 + 14)
    assert heat.notice == (
        f"Notice: waiting for rank 2, the straggler, cost the others {lost} ms, in all 6 steps."
    )
    assert f"{lost} ms" in heat.text.splitlines()[-1]


def test_turns_are_no_straggler() -> None:
    assert "in turn" in heat_of(steps([10, 20] * 4, [20, 10] * 4)).notice


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_noise_has_a_straggler_as_seldom_as_the_level_says(ranks: int) -> None:
    """Times are drawn anew in each step: at a level of 5 %, few of 200 runs have a straggler."""
    draws = random.Random(ranks)
    noise = ([[draws.randint(10, 40) for _ in range(12)] for _ in range(ranks)] for _ in range(200))
    named = [heat_of(steps(*each)).notice for each in noise]
    assert sum("straggler" in notice for notice in named) <= 200 * CHANCE


@pytest.mark.parametrize(("ranks", "least"), [(2, 6), (4, 4), (8, 3)])
def test_a_straggler_is_late_in_more_steps_than_chance_allows(ranks: int, least: int) -> None:
    for count in range(1, 8):
        found = heat_of(steps(*[[10] * count] * (ranks - 1), [30] * count)).notice
        assert f"rank {ranks - 1}" in found
        assert ("the straggler" in found) == (count >= least)
        assert ("may be chance" in found) == (count < least)


def test_the_straggler_is_the_rank_that_the_table_of_a_trace_names() -> None:
    trace = steps([10] * 6, [11] * 6, [25] * 6)
    assert "rank 2, the straggler" in heat_of(trace).notice
    assert "Most waited for: rank 2" in timeline_model(trace).text


def test_waits_for_unknown_ranks_have_no_straggler() -> None:
    spans = [
        Span(0, "comm", "all_reduce", "comm", 10, 90, ready_ns=80, seq=1),
        *(Span(rank, "compute", "SGD", "optimizer", 90, 100) for rank in range(2)),
        *(Span(rank, "compute", "Linear", "forward", 0, 10) for rank in range(2)),
    ]
    assert "none is always the last" in heat_of(Trace(spans, 2)).notice


def test_a_long_step_is_named() -> None:
    slow = [10] * 4 + [40] + [10] * 4
    assert "step 4 took 43 ms, 3.3× the typical 13 ms" in heat_of(steps(slow, slow)).notice
    assert "all steps take about 13 ms" in heat_of(steps([10] * 5, [10] * 5)).notice


def test_hidden_waiting_is_not_lost() -> None:
    spans = [
        Span(0, "compute", "b", "backward", 0, 100),
        Span(0, "comm", "all_reduce", "comm", 10, 110, ready_ns=105, seq=1),
        Span(0, "compute", "SGD", "optimizer", 110, 120),
    ]
    assert heat_of(Trace(spans, 1)).waited == ((5,),)


def test_many_steps_share_columns_and_none_is_lost() -> None:
    computed = [10] * (3 * COLUMNS)
    computed[401] = 99
    heat = heat_of(steps(computed))
    assert heat.group == 3
    assert len(heat.took[0]) == COLUMNS
    assert [at for at, ns in enumerate(heat.took[0]) if ns > 20 * MS] == [401 // 3]


@pytest.mark.parametrize(
    "trace",
    [
        steps([10, 10, 10], [10, 30, 12]),
        steps(*[[10] * 18] * 8),
        examples.ddp(16, steps=40),
        examples.ddp(1),
        examples.compute_only(),
        examples.blocked_in_forward(),
        Trace([*steps([10] * 3, [10] * 3).of(0), *steps([10] * 2, [10] * 2).of(1)], 3),
    ],
    ids=["two", "eight", "sixteen", "one", "alone", "no optimizer", "fewer"],
)
def test_the_picture_is_readable(trace: Trace) -> None:
    if not trace.steps:
        with pytest.raises(TraceError, match=r"no steps to compare: mark each step"):
            heat_of(trace)
        return
    model = heat_of(trace)
    figure = draw_heat(model)
    assert_readable(figure)
    assert {model.title, model.notice, "rank 0"} <= {text for text, _ in texts(figure)}


def test_it_is_shown_as_show_shows(capsys: pytest.CaptureFixture[str]) -> None:
    trace = examples.ddp(3, steps=4)
    assert isinstance(heat_map(trace), Figure)
    assert capsys.readouterr().out == heat_of(trace).text + "\n"
