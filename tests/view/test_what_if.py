"""A recorded step beside its replay: the numbers agree with the simulator, and controls work."""

import types
from typing import Any

import pytest

from ddpkit import simulate
from ddpkit.errors import TraceError
from ddpkit.simulate import assign_buckets, replay
from ddpkit.trace import Trace
from ddpkit.view import what_if
from ddpkit.view.drawing.steps import example_step
from tests.view import examples
from tests.view.readable import assert_readable

STEP = example_step()
RECORDED = replay(STEP, 3, "1 Gbit/s, 50 us", assign_buckets(STEP.gradients, 25), overhead_ns=9_000)


# settings, and the arguments of the simulator that they stand for
BOTH: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"cap_mb": 5.0}, {"bucket_cap_mb": 5.0}),
    ({"slow": 2, "times": 3.0}, {"slow": {2: 3.0}}),
    (
        {"cap_mb": 1.0, "gbits": 0.5, "us": 0.0, "slow": 0, "times": 2.0},
        {"bucket_cap_mb": 1.0, "link": "500 Mbit/s", "slow": {0: 2.0}},
    ),
]
# one half of the link changes, the other half stays
HALVES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"gbits": 10.0}, {"link": "10 Gbit/s, 50 us"}),
    ({"us": 2000.0}, {"link": "1 Gbit/s, 2 ms"}),
]


@pytest.mark.parametrize(
    ("trace", "settings", "changed"),
    [
        *((RECORDED.trace(), *each) for each in BOTH + HALVES),
        *((examples.ddp(3, steps=6), *each) for each in BOTH),
    ],
)
def test_each_setting_is_the_replay_of_the_simulator(
    trace: Trace, settings: dict[str, Any], changed: dict[str, Any]
) -> None:
    shown = what_if(trace).model(**settings).sides[1]
    expected = simulate.what_if(trace, **changed).step(0).breakdown()[0]
    assert shown.length_ns == expected.step_ns
    assert shown.slowest.breakdown == expected


def test_as_recorded_the_two_are_alike() -> None:
    model = what_if(RECORDED.trace()).model()
    assert [side.label for side in model.sides] == ["recorded", "replayed as recorded"]
    assert "as long as recorded" in model.title
    assert model.sides[0].length_ns == RECORDED.step_ns


def test_it_starts_with_what_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    run = types.SimpleNamespace(trace=RECORDED.trace())
    view = what_if(run, bucket_cap_mb=5, link="10 Gbit/s, 20 us", slow={2: 2}, rank=None)
    assert view.start == {"cap_mb": 5, "gbits": 10.0, "us": 20.0, "slow": 2, "times": 2}
    said = capsys.readouterr().out
    assert said.startswith("cap 5 MB, 10 Gbit/s, 20 us, rank 2 takes 2× as long: ")
    assert "the communication is simulated" in " ".join(said.split())
    assert [len(side.timeline.rows) for side in view.model().sides] == [3, 3]


@pytest.mark.parametrize("rank", [0, None])
@pytest.mark.parametrize("settings", [{}, {"cap_mb": 1.0, "gbits": 100, "us": 5, "times": 1.5}])
def test_the_picture_is_readable(rank: int | None, settings: dict[str, Any]) -> None:
    assert_readable(what_if(examples.ddp(4, steps=5), rank=rank).figure(**settings))


def test_the_controls_move_the_picture(displayed: list[object]) -> None:
    view = what_if(RECORDED.trace(), bucket_cap_mb=4)
    assert [type(each).__name__ for each in displayed] == ["dict", "Image", "dict", "dict"]
    panel = view.controls
    assert panel.values() == {"cap_mb": 4, "gbits": 1.0, "us": 50.0, "slow": 2, "times": 1.0}
    assert [control["label"] for control in panel.controls.values()] == [
        "Bucket cap", "Bandwidth", "Latency", "Slow rank", "Takes",
    ]  # fmt: skip
    panel.choose(cap_mb=0.0)
    assert "replayed as recorded" in panel.said
    panel.choose(slow=1, times=3.0)
    assert "rank 1 takes 3× as long" in panel.said
    assert panel.picture == view.html(cap_mb=0.0, slow=1, times=3.0)


def test_what_cannot_be_replayed_is_a_sentence() -> None:
    with pytest.raises(TraceError, match="no steps"):
        what_if(examples.token_ring())
    with pytest.raises(ValueError, match="takes one slow rank"):
        what_if(RECORDED.trace(), slow={0: 2, 1: 2})
    with pytest.raises(TraceError, match="no rank 3"):
        what_if(RECORDED.trace(), rank=3)
