"""The scaling calculator: the numbers agree with the simulator, and picture and sliders work."""

from dataclasses import replace
from typing import Any

import pytest

from ddpkit.link import Link
from ddpkit.simulate import assign_buckets, scaling
from ddpkit.view import explore_scaling
from ddpkit.view.drawing.steps import example_step
from ddpkit.view.drawing.words import ms
from ddpkit.view.scaling.figure import draw_scaling
from ddpkit.view.scaling.model import scaling_model
from tests.view import examples
from tests.view.readable import assert_readable, texts

LINK = Link.parse("10 Gbit/s, 200 us")
SETTINGS: dict[str, dict[str, Any]] = {
    "start": {"ranks": 64},
    "one rank": {"ranks": 1},
    "a number between": {"ranks": 48},
    "all": {"ranks": 4096, "batch": 16.0},
    "cheapest": {"ranks": 4096, "algorithm": "cheapest"},
    "small batch": {"ranks": 8, "batch": 0.125},
    "fast": {"link": Link(0, float("inf")), "ranks": 32},
    "slow": {"link": Link.parse("100 Mbit/s, 5 ms"), "ranks": 512, "cap_mb": 0.5},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_picture_is_readable(setting: str) -> None:
    model = scaling_model(example_step(), **({"link": LINK} | SETTINGS[setting]))
    figure = draw_scaling(model)
    assert_readable(figure)
    assert {model.title, model.text, model.notice} <= {text for text, _ in texts(figure)}


def test_its_numbers_are_the_simulators() -> None:
    step = example_step()
    model = scaling_model(step, LINK, ranks=48, cap_mb=5.0)
    buckets = assign_buckets(step.gradients, 5.0)
    assert model.weak[model.at].world_size == 48
    for some, strong in ((model.weak, False), (model.strong, True)):
        (same,) = scaling(step, LINK, [48], strong=strong, buckets=buckets)
        assert some[model.at].speed_up == same.speed_up
        assert f"{same.speed_up:,.3g} times" in model.text
    best = max(model.strong, key=lambda each: each.speed_up)
    assert f"fastest on {best.world_size} rank" in model.notice
    assert len(model.table().splitlines()) == len(model.weak) + 3


@pytest.mark.parametrize("ranks", [1, 16, 4096])
def test_the_title_says_what_the_bar_of_the_growing_batch_does(ranks: int) -> None:
    """A recorded step may have time that is neither compute nor communication."""
    step = replace(example_step(), other_ns=30_000_000)
    model = scaling_model(step, LINK, ranks, batch=2)
    bar = model.weak[model.at].replay.trace(1).breakdown()[0]
    assert bar.idle_ns == 60_000_000
    assert model.title.startswith(f"{ms(bar.compute_ns)} of compute")


def test_the_sliders_move_the_picture(displayed: list[object]) -> None:
    view = explore_scaling(examples.ddp(2, steps=5), link="2 Gbit/s, 33 us", world_size=20)
    panel = view.controls
    assert panel.values() == view.start
    before = panel.picture
    panel.choose(ranks=256)
    assert panel.picture == view.html(ranks=256) != before
    assert "256 ranks" in panel.said


def test_4096_ranks_choose_the_cheapest_for_each_bucket() -> None:
    ring, cheapest = (
        scaling_model(example_step(), LINK, ranks=4096, algorithm=name)
        for name in ("ring", "cheapest")
    )
    assert ring.weak[-1].world_size == cheapest.weak[-1].world_size == 4096
    assert cheapest.weak[-1].efficiency > 1.5 * ring.weak[-1].efficiency
    assert cheapest.title == f"{ring.title}, cheapest"


def test_a_batch_is_above_0() -> None:
    with pytest.raises(ValueError, match="batch=0"):
        scaling_model(example_step(), LINK, ranks=2, batch=0)
