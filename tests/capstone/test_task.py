"""Lab 15's task: its shards, the result of a run, and its time, equal in all runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks._load import burning
from ddpkit import answers
from ddpkit.capstone import GIVEN_MS, MEMORY, TextModel, TextTask, floor_ms
from ddpkit.capstone import score as score_it
from ddpkit.capstone.picture import show_costs
from ddpkit.capstone.score import TrainingScore, best, score_of, table, unranked
from ddpkit.capstone.task import GIVEN_PEAK, GIVEN_SENT, RANKS, STEPS
from ddpkit.capstone.trained import Outcome, observed, outcome
from ddpkit.errors import LessonError
from tests.capstone.lesson import given

TRAIN = Outcome(1.7, 0.01, 0.0, 900.0, 900.0, False, 20, 7, 5 * 10**9)


def test_every_rank_has_as_many_letters_a_step_and_none_of_them_has_the_whole_text() -> None:
    shards = TextTask(7).shards
    assert len(shards) == RANKS
    for shard in shards:
        assert len(shard) == STEPS
        assert {sum(len(each) - 1 for each in step) for step in shard} == {256}
    letters = [{int(x) for step in shard for each in step for x in each} for shard in shards]
    assert sum(map(len, letters)) == len(set.union(*letters))


def test_a_model_is_judged_by_its_parameters_alone() -> None:
    task = TextTask(7)
    flat = _flat(task.model())
    assert task.loss(flat) == TextTask(7).loss(flat) > 3
    with pytest.raises(ValueError, match="parameters, but the tensor given has the shape"):
        task.loss(flat[1:])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = torch.rand(1)
        torch.manual_seed(1)
        task.model()
        assert torch.rand(1) == first


def test_the_model_asked_for_is_near_the_entropy_and_no_other_model_is_near_it() -> None:
    """The start is at a distance of 1, and the trained model of another language is farther
    away."""
    task, other = TextTask(7), TextTask(8)
    assert task.off(task.trained) == 0
    assert task.off(_flat(task.model())) == pytest.approx(1)
    assert task.off(other.trained) > 2
    assert task.language.entropy < task.loss(task.trained) < task.language.entropy + 0.3
    assert task.loss(other.trained) > task.language.entropy + 1
    assert task.off(torch.full_like(task.trained, torch.nan)) != 0


def _flat(model: TextModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_run_that_is_not_ranked_has_a_reason() -> None:
    assert unranked(TRAIN) == ""
    for wrong, why in (
        ({"beyond": True}, "cannot be recomputed"),
        ({"clock": 100.0}, "not that of its work"),
        ({"ms": 1.0, "clock": 1.0}, "less than the gradients"),
        ({"products": 10**8}, "less than the gradients"),
        ({"apart": 0.1}, "the replicas differ"),
        ({"off": 0.3}, "not the given script's"),
        ({"off": float("nan")}, "not the given script's"),
    ):
        assert why in unranked(replace(TRAIN, **wrong)), wrong


def test_a_score_that_costs_more_of_nothing_is_unbeaten() -> None:
    rows = [
        TrainingScore(name, ms, 1.7, sent, peak)
        for name, ms, sent, peak in (("a", 1, 9, 5), ("b", 2, 8, 5), ("c", 2, 9, 5), ("d", 9, 9, 1))
    ]
    bad = TrainingScore("bad", 0.0, 9.0, 0, 0, "not ranked: x")
    assert [each.name for each in best([*rows, bad])] == ["a", "b", "d"]
    assert [line[:3] for line in table(bad, rows).splitlines()[1:6]] == [
        *("  b", "* a", "* b", "  c", "* d"),
    ]


def test_a_score_is_the_median_with_the_worst_loss() -> None:
    runs = [replace(TRAIN, ms=ms, clock=ms, loss=ms / 1000) for ms in (900.0, 2500.0, 1000.0)]
    one = score_of("mine", runs)
    assert (one.ms, one.loss, one.why) == (1000, 2.5, "")
    text = table(one, [one, replace(one, name="other", ms=1020.0)])
    assert "mine and other are equal" in text
    assert f"{floor_ms():,.0f}" in text
    bad = TrainingScore("bad", 0.0, 9.0, 0, 0, "not ranked: x")
    assert "not ranked: x" in table(bad, [one])
    assert "2.29" in replace(one, ms=1000.0).line.split()
    assert "2.29" not in replace(one, ms=1000.0, why="real time", real=True).line.split()


@pytest.mark.processes
def test_a_training_that_does_nothing_has_a_score(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = score_it(_nothing, "nothing", seeds=(1,))
    assert "less than the gradients" in found.why
    assert "nothing" in capsys.readouterr().out


def _nothing(model: Any, shard: Any) -> None:
    pass


def test_the_picture_has_a_dot_for_each_score(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [TrainingScore("mine", 900.0, 1.7, 1e7, 2.6e6)]
    monkeypatch.setattr("ddpkit.capstone.picture.kept_scores", lambda: kept)
    figure = show_costs()
    assert figure is not None
    words = [each.get_text() for each in figure.axes[0].texts]
    assert words == ["given script, 3.7 MB", "mine, 2.6 MB"]


@pytest.mark.parametrize(
    "programs", [b"no zlib", zlib.compress(b"[1]"), zlib.compress(b'[["x"],[],[],[]]')]
)
def test_what_is_no_claim_is_refused(programs: bytes) -> None:
    model = torch.zeros(sum(p.numel() for p in TextModel().parameters()))
    claim = {"model": model, "apart": 0.0, "clock": 1.0, "peak": 1, "programs": programs}
    with pytest.raises(LessonError, match="this training cannot be judged"):
        outcome(TextTask(1), claim)


@pytest.mark.processes
def test_the_time_is_the_same_in_three_runs_two_of_them_on_a_loaded_machine() -> None:
    """Equal to the nanosecond; the constants are those of the given script."""
    task = TextTask(1)
    runs = []
    for load, steps in ((0, STEPS), (4, 2), (4, 2), (0, 2)):
        with burning(load):
            runs.append(outcome(task, observed(partial(_few, given().train_slowly, steps), task)))
    whole, *short = runs
    assert len({(each.ms, each.clock, each.sent, each.peak) for each in short}) == 1
    assert whole.ms == pytest.approx(GIVEN_MS, abs=1)
    assert whole.sent == pytest.approx(GIVEN_SENT, rel=0.01)
    assert whole.peak == pytest.approx(GIVEN_PEAK, rel=0.01)
    assert (whole.model, whole.time, whole.replicas) == ("the same", "recomputed", "equal")


def _few(train: Callable[..., Any], steps: int, model: Any, shard: Any) -> None:
    train(model, shard[:steps])


@pytest.mark.processes
def test_the_kits_answer_costs_the_same_for_each_language() -> None:
    claims: list[Any] = []
    for seed in (1, 2):
        task = TextTask(seed)
        came = outcome(task, observed(answers.get("train_fast"), task))
        assert came.off < 0.03  # half of the allowed value
        assert came.ms * 2.1 < GIVEN_MS
        assert came.peak < MEMORY
        claims.append(came)
    assert claims[0].ms == claims[1].ms > floor_ms()
