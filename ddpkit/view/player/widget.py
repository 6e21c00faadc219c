"""`play`: a collective step by step, simulated or as real ranks did it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.simulate import Schedule
from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.drawing.shell import View, nothing
from ddpkit.view.player.recorded import playback_of_trace
from ddpkit.view.player.scheduled import playback_of_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACE_MS = 1200  # per step


def play(schedule_or_run: Schedule | HasTrace | Trace, length: int | None = None) -> View[int]:
    """Show a collective step by step: who sends what to whom, and which sums each rank holds.

    The collective is a `simulate.schedule`, with ``length`` elements (float32) instead of its own
    if given; or the sends and receives of a run. In a notebook there are buttons and a slider;
    anywhere ``play(...).figure(step=3)`` is the picture after step 3, and ``.table()`` all steps as
    text. Raises TraceError for a run without messages, ValueError for more than 16 ranks.
    """
    if isinstance(schedule_or_run, Schedule):
        playback = playback_of_schedule(schedule_or_run, length)
    elif length is not None:
        raise ValueError(
            "length= applies to schedules only: the messages of a run have fixed sizes"
        )
    elif why := skipped("play", schedule_or_run, or_else="a schedule"):
        return nothing(why)
    else:
        playback = playback_of_trace(trace_of(schedule_or_run))

    def moment(step: int) -> int:
        if not 0 <= step <= playback.steps:
            raise ValueError(f"there is no {playback.unit} {step}: choose 0 to {playback.steps}")
        return step

    def draw(step: int) -> Figure:
        from ddpkit.view.player.figure import draw_moment

        return draw_moment(playback, step)

    start = min(1, playback.steps)  # a still picture says more with messages in it
    view = View(
        {"step": start},
        moment,
        draw,
        lambda step: prose(f"{playback.title}.", playback.line(step), playback.notice),
        lambda step: f"{playback.title}\n{playback.table()}\n{playback.notice}",
    )
    return view.show(lambda view: _controls(view, playback.steps))


def _controls(view: View[int], last: int) -> Any:
    """Play, buttons and a slider, all of them in the order of the Tab key."""
    import ipywidgets as w

    slider = w.IntSlider(view.start["step"], 0, last, description="step")
    player = w.Play(value=slider.value, min=0, max=last, interval=PACE_MS, show_repeat=False)
    w.jslink((player, "value"), (slider, "value"))
    moves = {
        ("First", "to before the first step"): lambda step: 0,
        ("Back", "one step back"): lambda step: max(0, step - 1),
        ("Next", "one step on"): lambda step: min(last, step + 1),
        ("Last", "to the end"): lambda step: last,
    }
    buttons = []
    for (name, tooltip), move in moves.items():
        button = w.Button(description=name, tooltip=tooltip, layout=w.Layout(width="4.5em"))
        button.on_click(lambda _, move=move: slider.set_trait("value", move(slider.value)))
        buttons.append(button)

    return view.live({"step": slider}, above=w.HBox([player, *buttons, slider]))
