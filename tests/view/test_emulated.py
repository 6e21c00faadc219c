"""Every picture of emulated time says "emulated", in the picture and in its text; others do not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from ddpkit import view
from ddpkit.trace import Trace
from tests.view import examples
from tests.view.readable import assert_readable, texts

EMULATED = {"emulated": "1 Gbit/s, 200 us", "time": "emulated", "speed": "1; rank 1: 0.5"}


def still(draw: Callable[[Trace], Figure | None]) -> Callable[[Trace], Figure]:
    def figure(trace: Trace) -> Figure:
        drawn = draw(trace)
        assert drawn is not None
        return drawn

    return figure


def moved(show: Callable[[Trace], view.View[Any]]) -> Callable[[Trace], Figure]:
    return lambda trace: show(trace).figure()


STEPS = examples.ddp(2, steps=6)
MESSAGES = examples.done_early()
PICTURES: dict[str, tuple[Trace, Callable[[Trace], Figure]]] = {
    "show": (STEPS, still(view.show)),
    "show a step": (STEPS, still(lambda trace: view.show(trace, step=1))),
    "show messages": (MESSAGES, still(view.show)),
    "compare": (STEPS, still(lambda trace: view.compare(trace, trace))),
    "stack": (STEPS, still(lambda trace: view.stack(trace, trace))),
    "heat_map": (STEPS, still(view.heat_map)),
    "explore": (STEPS, moved(view.explore)),
    "play": (MESSAGES, moved(view.play)),
    "explore_buckets": (STEPS, moved(view.explore_buckets)),
    "explore_scaling": (STEPS, moved(view.explore_scaling)),
    "what_if": (STEPS, moved(view.what_if)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_emulated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace, draw = PICTURES[name]
    figure = draw(replace(trace, facts={**examples.FACTS, **EMULATED}))
    assert any("emulated" in text for text, _ in texts(figure))
    assert "emulated" in capsys.readouterr().out
    assert_readable(figure)


@pytest.mark.parametrize("name", PICTURES)
def test_a_real_machines_picture_does_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace, draw = PICTURES[name]
    figure = draw(replace(trace, facts=examples.FACTS))
    assert not any("emulated" in text.lower() for text, _ in texts(figure))
    assert "emulated" not in capsys.readouterr().out.lower()
