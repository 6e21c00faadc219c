"""The map of plans: the numbers agree with lab 09, and picture and sliders work."""

from typing import Any

import pytest

from ddpkit.answers.lab09 import plan
from ddpkit.view import explore_plan
from ddpkit.view.plan.figure import draw_plan
from ddpkit.view.plan.model import BATCHES, WORLDS, plan_map
from tests.view.readable import assert_readable, texts


def seconds(n: int, batch: int) -> float:
    return max(batch * 0.003, 0.02 + n * 20e-6)


SETTINGS: dict[str, dict[str, Any]] = {
    "a day": {},
    "two hours": {"deadline": 2},
    "too soon": {"deadline": 0.01},
    "without end": {"deadline": 10_000},
    "one plan": {"worlds": [4], "batches": [32]},
    "one batch": {"batches": [64]},
    "dear": {"dollars": 1000, "noise": 1e6},
    "free": {"dollars": 0},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_map_is_readable(setting: str) -> None:
    model = plan_map(seconds, **{"noise": 1000, "least_steps": 40_000} | SETTINGS[setting])
    figure = draw_plan(model)
    assert_readable(figure)
    assert {model.title, model.text, model.notice} <= {text for text, _ in texts(figure)}
    assert len(model.table().splitlines()) == len(model.cells) + 3


@pytest.mark.parametrize("deadline", [2, 5, 24, 10_000])
def test_the_cheapest_is_lab_09s(deadline: float) -> None:
    model = plan_map(seconds, 1000, 40_000, deadline=deadline)
    best = model.cheapest
    found = plan(seconds, 1000, 40_000, WORLDS, BATCHES, 2.0, deadline)
    assert found == (best and (best.ranks, best.batch))
    assert model.fastest.hours == min(cell.hours for cell in model.cells)


def test_the_deadline_moves_the_picture(displayed: list[object]) -> None:
    view = explore_plan(seconds, 1000, deadline=24)
    panel = view.controls
    assert panel.values() == view.start
    before = panel.picture
    panel.choose(deadline=5)
    assert panel.picture == view.html(deadline=5) != before
    assert "In 5 h the cheapest is" in panel.said


def test_a_plan_has_a_deadline() -> None:
    with pytest.raises(ValueError, match=r"a deadline above 0, not .*, 0$"):
        plan_map(seconds, 1000, 40_000, deadline=0)
