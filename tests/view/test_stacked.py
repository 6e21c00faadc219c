"""Parts of typical steps as stacked bars: the numbers, the words, and the picture."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from ddpkit import simulate
from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from ddpkit.view import stack
from ddpkit.view.stacked.figure import draw_stacked
from ddpkit.view.stacked.model import PARTS, stacked_steps
from tests.view import examples
from tests.view.readable import assert_readable, texts

MS = examples.MS
FIXTURES = Path(__file__).parents[1] / "trace" / "fixtures"


def step(forward: int, backward: int, late: int, optimizer: int, idle: int = 0) -> Trace:
    """Return one step of one rank, in ms.

    The communication is exposed for `late` ms, and hidden for 2.
    """
    at = [0]
    for ms in (forward, backward, late, optimizer, idle):
        at.append(at[-1] + ms * MS)
    spans = [
        Span(0, "step", "step", "step", 0, at[5]),
        Span(0, "compute", "Linear", "forward", 0, at[1]),
        Span(0, "compute", "backward", "backward", at[1], at[3]),
        Span(0, "comm", "all_reduce", "comm", at[2] - 2 * MS, at[3], 8, blocked_ns=at[2]),
        Span(0, "compute", "SGD", "optimizer", at[3], at[4]),
    ]
    return Trace(tuple(spans), 1, examples.FACTS)


def in_ms(trace: Trace, **options: int) -> dict[str, int]:
    (bar,) = stacked_steps([trace], **options).bars
    return {part: ns // MS for part, ns in zip(PARTS, bar.lengths, strict=True) if ns}


def test_the_parts_of_a_step_add_up() -> None:
    expected = {"forward": 10, "backward": 20, "exposed comm": 15, "optimizer": 5, "idle": 4}
    assert in_ms(step(10, 20, 15, 5, 4)) == expected
    for trace in (examples.ddp(2, steps=6), examples.done_early()):
        (bar,) = stacked_steps([trace]).bars
        whole = trace.step(4) if trace.steps else trace
        assert bar.step_ns in {trace.step(k).breakdown()[0].step_ns for k in range(trace.steps)} | {
            whole.breakdown()[0].step_ns
        }


def test_compute_inside_a_backward_counts_once() -> None:
    """Checkpointing runs a forward in a backward; a span of the user surrounds both."""
    spans = (
        Span(0, "compute", "mine", "span", 0, 50 * MS),
        Span(0, "compute", "Linear", "forward", 0, 10 * MS),
        Span(0, "compute", "backward", "backward", 10 * MS, 40 * MS),
        Span(0, "compute", "Linear", "forward", 20 * MS, 30 * MS),
    )
    trace = Trace(spans, 1, examples.FACTS)
    assert in_ms(trace) == {"forward": 10, "backward": 30, "other compute": 10}


def test_each_bar_is_compared_with_the_first_of_its_group() -> None:
    traces = [step(10, 20, 20, 0), step(10, 20, 5, 0), step(10, 10, 4, 0), step(10, 10, 10, 0)]
    model = stacked_steps(traces, ["a", "b", "c", "d"], by=2)
    assert [bar.base_ns // MS for bar in model.bars] == [50, 50, 24, 24]
    assert [bar.change for bar in model.bars] == ["", "30% shorter", "", "25% longer"]
    assert model.notice == (
        "Notice: b is 30% shorter than the first of its group, and hides 29% of its comm."
    )
    assert stacked_steps(traces[2:]).notice == (
        "Notice: 42% of run 1 is forward; no bar is shorter."
    )


def test_a_step_can_be_chosen_and_a_run_without_steps_is_whole() -> None:
    trace = examples.ddp(2, steps=6)
    for k in (0, 5):
        (bar,) = stacked_steps([trace], rank=1, step=k).bars
        assert bar.step_ns == trace.step(k).breakdown()[1].step_ns
    plain = Trace((Span(0, "comm", "barrier", "comm", 0, MS),), 1, examples.FACTS)
    assert in_ms(plain) == {"exposed comm": 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": 2}, "3 runs cannot be divided into groups of 2"),
        ({"by": 0}, "groups of 0"),
        ({"labels": ["a"]}, "1 labels for 3 runs"),
        ({"rank": 2}, "there is no rank 2"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stack(*[examples.ddp(2)] * 3, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a run"):
        stack()
    with pytest.raises(TraceError, match="no step 9"):
        stack(examples.ddp(2, steps=4), step=9)


def test_it_draws_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    traces = [step(10, 20, 20, 3, 1), step(10, 20, 5, 3), step(1, 2, 0, 0), step(1, 2, 9, 1)]
    labels = ["one bucket", "a label so long that it has to be written in smaller type " * 2]
    for by in (1, 2, 4):
        model = stacked_steps(traces, [*labels, "c", "d"], by=by)
        figure = draw_stacked(model)
        assert_readable(figure)
        shown = [text for text, _ in texts(figure)]
        assert model.title in shown
        assert all(bar.label in shown for bar in model.bars)
    assert isinstance(stack(*traces, labels=[*labels, "c", "d"], by=2), Figure)
    assert "one bucket" in capsys.readouterr().out


def test_a_recording_of_torch_profiler_will_do() -> None:
    imported = Trace.load(*(FIXTURES / f"gloo.rank{rank}.json.gz" for rank in (0, 1)))
    for rank in (0, 1):
        (bar,) = stacked_steps([imported], rank=rank).bars
        steps = [imported.step(k).breakdown()[rank].step_ns for k in range(imported.steps)]
        assert bar.step_ns in steps
        assert all(bar.lengths[PARTS.index(part)] for part in ("forward", "backward", "optimizer"))
    assert_readable(draw_stacked(stacked_steps([imported, imported])))


def test_a_simulated_trace_will_do() -> None:
    trace = examples.ddp(2, steps=6)
    recorded, replayed = stacked_steps([trace, simulate.what_if(trace)]).bars
    assert replayed.lengths[PARTS.index("backward")]
    assert recorded.base_ns == replayed.base_ns
