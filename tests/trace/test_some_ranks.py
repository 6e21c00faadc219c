"""Usually a recording has one rank of many: only recorded ranks are shown and accepted."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import TraceError
from ddpkit.simulate import forecast, what_if
from ddpkit.text import rank_list
from ddpkit.trace import Trace
from ddpkit.view import timeline_model
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.explorer.page import page
from ddpkit.view.heat.figure import draw_heat
from ddpkit.view.heat.model import heat_of
from tests.trace.recordings import gpu_step, of_rank, write
from tests.view.readable import texts


def files(folder: Path, *ranks: int, world_size: int = 64) -> list[Path]:
    steps = [event for n in range(8) for event in gpu_step(n)]
    return write(folder, *(of_rank(rank, world_size, *steps, backend="nccl") for rank in ranks))


def said(*args: object) -> str:
    ran = CliRunner().invoke(main, [*map(str, args)])
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.mark.parametrize(("ranks", "line"), [
    ([0], "The files hold 1 of 64 ranks: rank 0."),
    ([5], "The files hold 1 of 64 ranks: rank 5."),
    ([3, 0, 1, 63], "The files hold 4 of 64 ranks: ranks 0 to 1, 3, 63."),
])  # fmt: skip
def test_only_recorded_ranks_have_lines(tmp_path: Path, ranks: list[int], line: str) -> None:
    text = said("trace", *files(tmp_path, *ranks))
    assert text.splitlines().count(line) == 1
    rows = [row.split("  ")[0] for row in text.splitlines() if row.startswith("rank ")]
    table = [row for row in rows if ":" not in row]
    assert table == [f"rank {rank}" for rank in sorted(ranks)]
    assert "sent nothing" not in text
    assert text.startswith(f"Run on {len(ranks)} of 64 ranks, 8 all-reduces of 4 kB")


def test_a_whole_job_has_no_such_line(tmp_path: Path) -> None:
    text = said("trace", *files(tmp_path, 0, 1, world_size=2))
    assert text.startswith("Run on 2 ranks, ")
    assert "The files hold" not in text
    assert "every rank: all_reduce ×8" in text


def test_the_page_and_the_pictures_have_recorded_ranks_alone(tmp_path: Path) -> None:
    trace = Trace.load(*files(tmp_path, 2, 40))
    text = page(trace)
    assert "rank 2" in text
    assert not any(f"rank {rank}<" in text for rank in (0, 1, 3, 41, 63))
    assert "every rank" in text  # "every rank" stands for all recorded ranks
    assert {row.rank for row in span_columns(trace).rows} == {2, 40}
    heat = heat_of(trace)
    assert heat.ranks == (2, 40)
    drawn = {said for said, _ in texts(draw_heat(heat))}
    assert {"rank 2", "rank 40"} <= drawn
    assert not {"rank 0", "rank 1"} & drawn


def test_a_saved_trace_still_knows(tmp_path: Path) -> None:
    trace = Trace.load(*files(tmp_path, 7))
    trace.save(tmp_path / "kept.json")
    assert Trace.load(tmp_path / "kept.json").recorded_ranks == trace.recorded_ranks == [7]


@pytest.mark.parametrize("named", ["", "x", "0, 0, 99", "-1", "9" * 5000, "²"])
def test_a_damaged_list_of_ranks_hides_no_span(tmp_path: Path, named: str) -> None:
    trace = Trace.load(*files(tmp_path, 1, world_size=3))
    odd = Trace(trace.spans, 3, {**trace.facts, "recorded_ranks": named})
    assert 1 in odd.recorded_ranks
    assert set(odd.recorded_ranks) <= {0, 1, 2}
    assert timeline_model(odd).text
    assert odd.step(0).breakdown()[1].compute_ns > 0


def test_a_rank_that_was_not_recorded_cannot_be_shown(tmp_path: Path) -> None:
    trace = Trace.load(*files(tmp_path, 0, 1))
    with pytest.raises(TraceError, match="rank 9 was not recorded: this trace has ranks 0 to 1"):
        timeline_model(trace, rank=9)
    assert timeline_model(trace, rank=1).rows[0].rank == 1


@pytest.mark.parametrize("ranks", [[0], [5], [3, 6]])
def test_predict_and_tune_take_recorded_ranks_for_all(tmp_path: Path, ranks: list[int]) -> None:
    paths = files(tmp_path, *ranks, world_size=8)
    for command in ("predict", "tune"):
        text = said(command, *paths)
        assert f"{len(ranks)} of 8 ranks recorded ({rank_list(ranks)})" in text
        assert text.startswith("0.json: 8 ranks, ")
    assert forecast(Trace.load(*paths)).recorded == tuple(ranks)


def test_predict_of_a_whole_job_says_nothing_of_copies(tmp_path: Path) -> None:
    paths = files(tmp_path, 0, 1, world_size=2)
    assert "recorded (" not in said("predict", *paths)
    assert forecast(Trace.load(*paths)).recorded == ()


def test_what_if_replays_all_ranks_of_the_job(tmp_path: Path) -> None:
    trace = what_if(Trace.load(*files(tmp_path, 5, world_size=8)), link="1 Gbit/s, 10 us")
    assert trace.world_size == 8
    assert len({part.compute_ns for part in trace.breakdown().values()}) == 1


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([4], "rank 4"), ([0, 1, 2, 7], "ranks 0 to 2, 7"), ([1, 3, 4], "ranks 1, 3 to 4")],
)
def test_lists_of_ranks_are_short(ranks: list[int], text: str) -> None:
    assert rank_list(ranks) == text
