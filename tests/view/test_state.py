"""The bars of ZeRO's stages: the numbers agree with lab 13, and picture and sliders work."""

from typing import Any

import pytest

from ddpkit.answers.lab13 import state_bytes
from ddpkit.view import explore_state
from ddpkit.view.state.figure import draw_state
from ddpkit.view.state.model import state_model
from tests.view.readable import assert_readable, texts

SETTINGS: dict[str, dict[str, Any]] = {
    "ZeRO's": {},
    "one rank": {"ranks": 1},
    "large": {"parameters": 405 * 10**9, "ranks": 8},
    "largest": {"parameters": 10**12, "ranks": 1024, "memory": 16 * 10**9},
    "small": {"parameters": 125_000_000, "ranks": 1024},
    "one parameter": {"parameters": 1},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_bars_are_readable(setting: str) -> None:
    model = state_model(state_bytes, **{"parameters": 7_500_000_000} | SETTINGS[setting])
    figure = draw_state(model)
    assert_readable(figure)
    assert {model.title, model.text, model.notice} <= {text for text, _ in texts(figure)}
    assert len(model.table().splitlines()) == len(model.bars) + 3


@pytest.mark.parametrize("ranks", [1, 3, 64])
def test_the_bytes_are_lab_13s(ranks: int) -> None:
    model = state_model(state_bytes, 7_500_000_001, ranks)
    for bar in model.bars:
        assert (
            bar.total == sum(bar.by_kind.values()) == state_bytes(7_500_000_001, ranks, bar.stage)
        )
    share = -(-7_500_000_001 // ranks)
    assert model.bars[3].by_kind == {
        "parameters": 2 * share,
        "gradients": 2 * share,
        "optimizer": 12 * share,
    }


@pytest.mark.parametrize("gigabytes", [1, 16, 31, 80, 120])
def test_it_fits_from_so_many_ranks_on(gigabytes: int) -> None:
    model = state_model(state_bytes, 7_500_000_000, memory=gigabytes * 10**9)
    for bar in model.bars:
        if bar.enough is None:
            assert state_bytes(7_500_000_000, 10**9, bar.stage) > model.memory
            continue
        assert state_bytes(7_500_000_000, bar.enough, bar.stage) <= model.memory
        if bar.enough > 1:
            assert state_bytes(7_500_000_000, bar.enough - 1, bar.stage) > model.memory


def test_what_fits_where_is_said_once() -> None:
    model = state_model(state_bytes, 7_500_000_000, memory=80 * 10**9)
    assert model.notice == (
        "Notice: in 80 GB, the model's state fits never in stage 0, "
        "in stages 1, 2, 3 from 2 ranks on."
    )


def test_the_ranks_move_the_bars(displayed: list[object]) -> None:
    view = explore_state(state_bytes)
    panel = view.controls
    assert panel.values() == view.start
    before = panel.picture
    panel.choose(ranks=1)
    assert panel.picture == view.html(ranks=1) != before
    assert "Each rank holds 120 GB in stage 0, 120 GB in stage 1" in panel.said.replace("\n", " ")


@pytest.mark.parametrize(("ranks", "parameters"), [(0, 1), (1, 0)])
def test_state_is_of_something(ranks: int, parameters: int) -> None:
    with pytest.raises(ValueError, match="give 1 parameter or more"):
        state_model(state_bytes, parameters, ranks)
