"""Watching a run: the reports of ranks, the resulting picture, and no leftovers."""

import math
import time
from pathlib import Path

import pytest

import ddpkit
from ddpkit import Cluster
from ddpkit.view import live
from ddpkit.view.live_run.figure import draw_progress
from ddpkit.view.live_run.model import Report, progress_of
from ddpkit.view.live_run.widget import Reporter
from tests.view.readable import assert_readable, texts


def reports(steps: int, lags_s: dict[int, float], step_s: float = 0.1) -> dict[int, list[Report]]:
    """Return reports of ranks that end step k at k × ``step_s`` plus a lag, with falling losses.

    Each report has 8 samples.
    """
    return {
        rank: [Report(5 + k * step_s + lag, 1 / (k + 1) + rank, 8) for k in range(steps)]
        for rank, lag in lags_s.items()
    }


def test_loss_throughput_and_lags() -> None:
    progress = progress_of(reports(31, {1: 0.0, 0: 0.03, 2: 0.001}))
    assert list(progress.losses) == [0, 1, 2]
    assert progress.losses[2][3] == 2.25
    assert progress.rates[-1] == (30, pytest.approx(3 * 8 / 0.1))
    assert progress.lags_ms == pytest.approx({0: 30, 1: 0, 2: 1})
    assert progress.text.splitlines() == [
        f"Step 30 on 3 ranks: loss {1 / 31 + 1:.4g}, 240 samples/s.",
        "Notice: rank 0 ends its steps 30 ms after the first.",
    ]


def test_emulated_time_is_called_so() -> None:
    emulated = {0: [Report(k, 1.0, 8, emulated=True) for k in range(3)]}
    assert progress_of(emulated).title == "Step 2 on 1 rank: loss 1, 8 samples/s (emulated)"


@pytest.mark.processes
def test_reports_have_the_time_of_the_emulated_machine() -> None:
    """The step is 20 ms of stated compute, which takes no real time."""

    def steps(watch: Reporter) -> None:
        for _ in range(5):
            ddpkit.busy("20 ms")
            watch.report(loss=1.0)

    with live() as watch:
        Cluster(2, link="unlimited", speed=math.inf).run(steps, watch)
    rates = watch.progress().rates
    assert rates[-1] == (4, pytest.approx(2 / 0.02))
    assert "(emulated)" in watch.progress().title


def test_a_step_counts_when_all_ranks_have_done_it() -> None:
    ahead = reports(5, {0: 0.0}) | reports(3, {1: 0.0})
    progress = progress_of(ahead)
    assert progress.title.startswith("Step 2 on 2 ranks")
    assert [k for k, _ in progress.rates] == [1, 2]
    assert "within" in progress.text


@pytest.mark.parametrize(("ranks", "steps"), [(0, 0), (4, 0), (4, 1), (1, 2), (4, 300), (32, 300)])
def test_the_picture_is_readable(ranks: int, steps: int) -> None:
    model = progress_of(reports(steps, {rank: rank / 100 for rank in range(ranks)}))
    figure = draw_progress(model)
    assert_readable(figure)
    assert model.title in {text for text, _ in texts(figure)}


def train(watch: Reporter) -> None:
    import torch.distributed as dist

    for k in range(20):
        watch.report(loss=1 / (k + 1), samples=4)
        dist.barrier()


def test_a_stopped_run_leaves_its_last_picture(displayed: list[object]) -> None:
    watch, seen = live(), []

    def stopped() -> None:
        with watch:
            seen.append(Path(watch._folder))
            assert seen[0].is_dir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert not seen[0].exists()
    assert [type(each).__name__ for each in displayed] == ["dict", "dict", "dict", "Image"]
    assert watch.progress().title == "No step is done yet"


@pytest.mark.processes
def test_the_picture_follows_the_ranks_and_nothing_is_left(
    displayed: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ddpkit.view.live_run.widget.EVERY_S", 0.01)
    with live() as watch:
        folder = Path(watch._folder)
        panel = watch.view
        empty = panel.picture
        Cluster(2).run(train, watch)
        deadline = time.monotonic() + 60
        while "Step 19 on 2 ranks" not in panel.said or panel.picture == empty:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]
    progress = watch.progress()
    assert [len(losses) for losses in progress.losses.values()] == [20, 20]
    assert progress.losses[1][-1] == 0.05
    assert capsys.readouterr().out == progress.text + "\n"
    assert [type(each).__name__ for each in displayed] == ["dict", "dict", "dict", "Image"]
    assert not folder.exists()


def test_outside_of_a_watch_a_report_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="inside `with live"):
        live().report(1.0)
