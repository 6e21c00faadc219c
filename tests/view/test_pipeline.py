"""Micro-batches of ranks: the numbers, the words about them, and the picture."""

import pytest
from matplotlib.figure import Figure

from ddpkit.errors import TraceError
from ddpkit.simulate import PIPELINES, pipeline_plans, pipeline_time
from ddpkit.trace import Span, Trace
from ddpkit.view import explore_pipeline, show_pipeline
from ddpkit.view.pipeline.figure import draw_pipeline
from ddpkit.view.pipeline.model import PipelinePicture, pipeline_picture
from ddpkit.view.timeline.figure import draw_timeline
from ddpkit.view.timeline.model import timeline_model
from tests.view.readable import assert_readable, texts


def picture(*names: str, stages: int = 4, micro: int = 8) -> PipelinePicture:
    traces = [pipeline_time(pipeline_plans(name, stages, micro)) for name in names]
    return pipeline_picture(traces, names if len(names) > 1 else ())


def test_the_numbers_are_those_of_the_plans() -> None:
    model = picture("gpipe", "1f1b")
    assert [step.length_ns for step in model.steps] == [660_000_000] * 2
    assert [row.held for row in model.steps[1].rows] == [4, 3, 2, 1]
    assert model.text.splitlines() == [
        "gpipe: 660 ms. In the bubble: 27.3% of it. Micro-batches held at most: 8 on each rank",
        "1f1b: 660 ms. In the bubble: 27.3% of it. Micro-batches held at most: 4, 3, 2, 1",
    ]


def test_the_table_has_every_operation_in_its_order() -> None:
    rows = picture("1f1b", stages=2, micro=2).table().splitlines()
    assert rows[-2:] == ["rank 0: F0 F1 B0 B1", "rank 1: F0 B0 F1 B1"]


def test_forwards_alone_hold_nothing_that_is_waited_for() -> None:
    spans = [Span(r, "compute", f"F{i}", "span", i + r, i + r + 1) for r in (0, 1) for i in (0, 1)]
    model = pipeline_picture([Trace(tuple(spans), 2)])
    assert [row.held for row in model.steps[0].rows] == [None, None]
    assert "held" not in model.text
    assert "held" not in [word for word, *_ in texts(draw_pipeline(model))]


def test_spans_of_other_names_are_left_out() -> None:
    spans = [
        Span(0, "compute", "F0", "span", 10, 20),
        Span(0, "compute", "Linear", "forward", 0, 50),
        Span(0, "comm", "send", "comm", 20, 90, 8, 1),
    ]
    (step,) = pipeline_picture([Trace(tuple(spans), 2)]).steps
    assert step.length_ns == 10
    assert [len(row.boxes) for row in step.rows] == [1, 0]
    assert [row.bubble for row in step.rows] == [0.0, 1.0]


@pytest.mark.parametrize(("stages", "micro"), [(1, 1), (2, 4), (16, 16)])
def test_every_size_can_be_read(stages: int, micro: int) -> None:
    assert_readable(draw_pipeline(picture("1f1b", stages=stages, micro=micro)))


def test_several_steps_lie_on_one_axis() -> None:
    figure = draw_pipeline(picture(*PIPELINES, micro=4))
    assert_readable(figure)
    words = [word for word, *_ in texts(figure)]
    assert sum(word == "rank 0" for word in words) == len(PIPELINES)
    assert sum(word.startswith("1f1b: 420 ms") for word in words) == 1


def test_show_colours_micro_batches() -> None:
    trace = pipeline_time(pipeline_plans("zero bubble", 2, 9))
    model = timeline_model(trace)
    assert {"F0", "B7", "W3"} <= {bar.kind for bar in model.rows[0].compute}
    # F8 has the colour of F0 again
    assert [bar.kind for bar in model.rows[0].compute if "F8" in bar.texts] == ["F0"]
    figure = draw_timeline(model)
    assert_readable(figure)
    assert {"F0", "W8", "forward: faint", "weights"} <= {word for word, *_ in texts(figure)}


def test_a_micro_batch_is_named_on_the_module_that_it_fills() -> None:
    """The module's span ends later, and other spans of length 0 may lie in it."""
    spans = [
        Span(0, "compute", "Linear", "forward", 0, 0),
        Span(0, "compute", "F3", "span", 0, 10),
        Span(0, "compute", "Sequential", "forward", 0, 10),
        Span(0, "compute", "Sequential", "forward", 10, 20),
    ]
    (row,) = timeline_model(Trace(tuple(spans), 1)).rows
    assert [(bar.kind, bar.texts[0]) for bar in row.labels] == [
        ("forward", "forward"),
        ("F3", "F3"),
    ]


def test_a_step_can_be_played() -> None:
    view = explore_pipeline("gpipe", stages=2, micro=2)
    assert "At 90 ms the ranks work on nothing, B0." in " ".join(view.text(played=0.5).split())
    whole, half = (len(view.figure(played=part).texts) for part in (1.0, 0.5))
    # the names of two backwards of rank 0 and of one backward of rank 1 are missing
    assert half == whole - 3
    assert_readable(view.figure(played=0.0))
    assert_readable(view.figure(played=0.5))


def test_show_prints_and_returns_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    figure = show_pipeline(pipeline_time(pipeline_plans("gpipe", 2, 2)))
    assert isinstance(figure, Figure)
    assert capsys.readouterr().out.startswith("180 ms. In the bubble: 33.3% of it.")


def test_what_cannot_be_shown_is_said() -> None:
    with pytest.raises(TraceError, match='busy\\("20 ms", "F0"\\)'):
        show_pipeline(Trace((), 2))
    trace = pipeline_time(pipeline_plans("gpipe", 2, 2))
    with pytest.raises(ValueError, match="1 labels for 2 runs"):
        show_pipeline(trace, trace, labels=["one"])
    with pytest.raises(ValueError, match="a run or a trace"):
        show_pipeline()


def test_the_sliders_have_a_picture_for_each_setting() -> None:
    view = explore_pipeline("1f1b", stages=4, micro=8, latency_ms=10)
    assert view.text().startswith("1f1b, 4 stages, 8 micro-batches: 820 ms.")
    assert view.text(schedule="gpipe").startswith("gpipe, 4 stages, 8 micro-batches: 720 ms.")
    assert "8 micro-batches: 570 ms" in view.text(schedule="interleaved", latency_ms=0)
    # rounded up to a multiple of 4 stages
    assert "12 micro-batches" in view.text(schedule="interleaved", micro=9)
    with pytest.raises(ValueError, match="there is no pipeline"):
        explore_pipeline("all at once")
