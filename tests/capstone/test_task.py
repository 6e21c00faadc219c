"""Lab 15's task: its text, what a run of it is worth, and that its time is that of every run."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks._load import burning
from ddpkit import answers
from ddpkit.capstone import GIVEN_MS, TARGET, TextModel, TextTask, floor_ms
from ddpkit.capstone.score import TrainingScore, score_of, table, unranked
from ddpkit.capstone.trained import Outcome, observed, outcome
from ddpkit.data import load_text
from ddpkit.errors import LessonError
from tests.capstone.lesson import given

MARGIN = 0.05  # nats by which the kit's answer has to stay below the target, on each text
TRAIN = Outcome(2.9, 0.0, 1700.0, 1700.0, False, 20, 7, (0.25,) * 4, (10**6,) * 4, 10**10, 0.95)


def test_the_text_is_whole_and_the_held_out_tenth_is_not_trained_on() -> None:
    train, held_out = load_text()
    assert train.dtype == held_out.dtype == np.uint8
    assert train.max() < 128
    assert 8.9 < len(train) / len(held_out) < 9.1
    tenths = [load_text(tenth)[1] for tenth in range(10)]
    assert sum(map(len, tenths)) == len(train) + len(held_out)
    assert bytes(held_out[:200]) not in bytes(train)
    with pytest.raises(ValueError, match="a tenth of the text, 0 to 9"):
        load_text(10)


def test_an_alphabet_exchanges_letters() -> None:
    plain, other = load_text(3)[1], load_text(3, alphabet=5)[1]
    pairs = set(zip(plain.tolist(), other.tolist(), strict=True))
    assert len(pairs) == len(set(plain.tolist())) == len(set(other.tolist()))
    assert not (load_text(3, alphabet=6)[1] == other).all()


def test_a_model_is_judged_by_its_parameters_alone() -> None:
    task = TextTask(7)
    flat = _flat(task.model())
    assert task.loss(flat) == TextTask(7).loss(flat) > 4.5
    with pytest.raises(ValueError, match="parameters, but the tensor given has the shape"):
        task.loss(flat[1:])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = torch.rand(1)
        torch.manual_seed(1)
        task.model()
        assert torch.rand(1) == first


def test_tables_of_another_start_are_known_whatever_they_learned() -> None:
    """The tables of a training by gradients stay near the given tables."""
    task = TextTask(7)
    given, other = (_flat(each.model()) for each in (task, TextTask(8)))
    assert task.alike(given) == pytest.approx(1)
    assert task.alike(3 * given) == pytest.approx(1)
    assert abs(task.alike(other)) < 0.1
    assert task.alike(torch.zeros_like(given)) == 0


def _flat(model: TextModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_who_is_not_ranked_and_why() -> None:
    assert unranked(TRAIN) == ""
    for wrong, why in (
        ({"beyond": True}, "cannot be recomputed"),
        ({"clock": 100.0}, "not that of its work"),
        ({"ms": 1.0, "clock": 1.0}, "below the floor"),
        ({"products": 10**8}, "below the floor"),
        ({"apart": 0.1}, "the replicas differ"),
        ({"alike": 0.3}, "did not start from the given weights"),
        ({"shares": (0.5, 0.4, 0.1, 0.0)}, "a rank rests"),
        ({"handed_in": (10**6, 10**6, 10**6, 20)}, "a rank sends less than one gradient"),
        ({"loss": TARGET}, "above"),
    ):
        assert why in unranked(replace(TRAIN, **wrong)), wrong


def test_a_score_is_the_median_with_its_spread_and_the_worst_loss() -> None:
    runs = [replace(TRAIN, ms=ms, clock=ms, loss=ms / 1000) for ms in (900.0, 2500.0, 1000.0)]
    one = score_of("mine", runs)
    assert (one.ms, one.least_ms, one.most_ms, one.loss, one.why) == (1000, 900, 2500, 2.5, "")
    text = table(one, [one, replace(one, name="other", ms=1020.0)])
    assert "mine and other are equal" in text
    assert f"{floor_ms():,.0f}" in text
    bad = TrainingScore("bad", 1.0, 1.0, 1.0, 9.0, 0, 0, "not ranked: x")
    assert "not ranked: x" in table(bad, [one])
    assert "6.25" in replace(one, ms=1000.0).line.split()
    assert "6.25" not in replace(one, ms=1000.0, real=True).line.split()


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
    """To the nanosecond; and it is a fifth of what the task says of the whole given script."""
    task = TextTask(1)
    train = partial(given().train_slowly, steps=4)
    times, losses = [], []
    for load in (0, 4, 4):
        with burning(load):
            came = outcome(task, observed(train, task.model(), task.text))
        times.append((came.ms, came.clock, came.sent, came.peak))
        losses.append(came.loss)
    assert len(set(times)) == 1
    assert max(losses) - min(losses) < 1e-4
    assert 5 * times[0][0] == pytest.approx(GIVEN_MS, rel=0.03)


@pytest.mark.processes
def test_the_kit_comes_below_the_target_with_a_margin() -> None:
    claims: list[Any] = []
    for seed in (1, 2):
        task = TextTask(seed)
        came = outcome(task, observed(answers.get("train_fast"), task.model(), task.text))
        assert came.loss < TARGET - MARGIN
        assert came.ms * 4 < GIVEN_MS
        claims.append(came)
    assert claims[0].ms == claims[1].ms > floor_ms()
    assert json.dumps(claims[0].shares) == json.dumps([0.25] * 4)
