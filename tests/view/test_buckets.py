"""The bucket explorer: its numbers, its picture, its sliders."""

import time
import types

import nbformat
import pytest
from nbclient import NotebookClient

from ddpkit.link import Link
from ddpkit.simulate import Gradient, Step, assign_buckets, replay
from ddpkit.view import explore_buckets
from ddpkit.view.buckets.figure import draw_buckets
from ddpkit.view.buckets.model import bucket_model
from ddpkit.view.drawing.shell import NOT_LIVE
from ddpkit.view.drawing.steps import caps, example_step
from tests.view import examples
from tests.view.readable import assert_readable, texts

LINK = Link.parse("10 Gbit/s, 200 us")
SETTINGS = {
    "start": (25.0, LINK, 4, 1.0),
    "many buckets": (0.1, Link.parse("1 Gbit/s, 200 us"), 4, 1.0),
    "one bucket": (1000.0, LINK, 64, 8.0),
    "slow compute": (1.0, Link.parse("400 Gbit/s"), 2, 0.25),
    "one rank": (25.0, LINK, 1, 1.0),
    "no link": (25.0, Link(), 4, 1.0),
    "slow link": (7.0, Link.parse("10 Mbit/s, 5 ms"), 1024, 1.0),
}


def test_the_numbers_are_those_of_the_replay() -> None:
    step = example_step()
    model = bucket_model(step, 5.0, LINK, 4)
    done = replay(step, 4, LINK, assign_buckets(step.gradients, 5.0))
    assert model.step_ns == done.step_ns == dict(model.curve)[5.0] == model.breakdown.step_ns
    assert model.best[1] == min(ns for _, ns in model.curve) < model.step_ns * 1.2
    assert model.compute_ns == step.compute_ns


def test_the_example_has_its_best_cap_in_between() -> None:
    model = bucket_model(example_step(), 25.0, LINK, 4)
    best = model.best[0]
    assert model.curve[0][0] < best < model.curve[-1][0]
    assert "too late" in model.notice
    assert f"Best cap: {best:g} MB" in model.text


@pytest.mark.parametrize(
    ("link", "said"),
    [("1 Gbit/s", "cannot start too early"), ("5 ms", "fewest buckets win"), ("1 ns", "hardly")],
)
def test_what_to_notice_follows_the_curve(link: str, said: str) -> None:
    assert said in bucket_model(example_step(), 25.0, Link.parse(link), 4).notice


def test_twice_the_speed_halves_the_compute() -> None:
    model = bucket_model(example_step(), 25.0, LINK, 4, speed=2)
    assert model.compute_ns == pytest.approx(example_step().compute_ns / 2, rel=1e-6)


@pytest.mark.parametrize("nbytes", [1, 4_000, 100_000_000, 40_000_000_000])
def test_caps_reach_from_small_to_one_bucket(nbytes: int) -> None:
    tried = caps(Step(0, (Gradient("w", nbytes, 10),)))
    assert tried == sorted(tried)
    assert tried[-1] * 2**20 >= nbytes
    assert len(tried) < 60


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        bucket_model(example_step(), 0.0, LINK, 4)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_picture_is_readable(setting: str) -> None:
    model = bucket_model(example_step(), *SETTINGS[setting])
    figure = draw_buckets(model)
    assert_readable(figure)
    assert {model.title, model.text, model.notice} <= {text for text, _ in texts(figure)}


def test_a_setting_that_is_misspelt_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    view = explore_buckets()
    for ask in (view.figure, view.text, view.table, view.png):
        with pytest.raises(TypeError, match="no setting 'cap': choose from cap_mb, gbits, us"):
            ask(cap=5)


def test_a_redraw_follows_a_slider() -> None:
    # loads fonts and modules
    draw_buckets(bucket_model(example_step(), 25.0, LINK, 4)).canvas.draw()
    start = time.process_time()  # time of this process alone, because CI machines are shared
    draw_buckets(bucket_model(example_step(), 0.1, LINK, 8)).canvas.draw()
    assert time.process_time() - start < 0.6  # 0.15 s on the developer's machine


def test_a_recorded_run_brings_its_step_link_and_ranks() -> None:
    step = example_step()
    trace = replay(step, 3, "1 Gbit/s, 50 us", assign_buckets(step.gradients, 5.0)).trace()
    view = explore_buckets(types.SimpleNamespace(trace=trace), cap_mb=5.0)
    assert view.start == {"cap_mb": 5.0, "gbits": 1.0, "us": 50.0, "speed": 1.0, "ranks": 3}
    assert "3 ranks" in view.text()
    assert explore_buckets(examples.ddp(2, steps=5)).start["ranks"] == 2


def test_the_sliders_move_the_picture(displayed: list[object]) -> None:
    view = explore_buckets(link="2 Gbit/s, 33 us", cap_mb=4.0)  # values that no slider has
    panel = view.controls
    assert [control["label"] for control in panel.controls.values()] == [
        "Bucket cap", "Bandwidth", "Latency", "Speed", "Ranks",
    ]  # fmt: skip
    assert panel.values() == view.start
    before = panel.picture
    panel.choose(ranks=64)
    assert panel.picture != before
    assert panel.picture == view.html(ranks=64)
    assert "64 ranks" in panel.said


@pytest.mark.processes
def test_a_saved_notebook_keeps_picture_and_text(tmp_path) -> None:
    code = "from ddpkit.view import explore_buckets\nexplore_buckets()"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    drawing, picture, text, rules, live = notebook.cells[0].outputs
    assert "image/png" in picture.data
    assert "Best cap: " in picture.metadata["image/png"]["alt"]
    assert "Best cap: " in text.text
    assert "aria-label='A step of 4 ranks" in drawing.data["text/html"]
    assert "<th scope='row'>10 MB</th><td>200 ms best</td>" in drawing.data["text/html"]
    assert NOT_LIVE in rules.data["text/html"]
    assert live.data["text/plain"] == NOT_LIVE
    assert "application/vnd.jupyter.widget-view+json" in live.data
