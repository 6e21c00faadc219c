"""`play`: a collective step by step, simulated or recorded on real ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpkit.simulate import Schedule
from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.drawing.shell import View, nothing
from ddpkit.view.drawing.sliders import Control
from ddpkit.view.player.model import Playback
from ddpkit.view.player.recorded import playback_of_trace
from ddpkit.view.player.scheduled import playback_of_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACE_MS = 1200  # for each step


def play(schedule_or_run: Schedule | HasTrace | Trace, length: int | None = None) -> View[int]:
    """Show a collective step by step: each message, and the sums that each rank holds.

    The collective is a `simulate.schedule`, or the sends and receives of a run. ``length`` replaces
    the length of a schedule, in float32 elements. In a notebook, buttons and a slider choose the
    step. ``play(...).figure(step=3)`` returns the picture after step 3, and ``.table()`` all steps
    as text; both work without a notebook. Raises TraceError for a run without messages, ValueError
    for more than 16 ranks.
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

    start = min(1, playback.steps)  # a still picture is clearer with messages in it
    view = View(
        {"step": start},
        moment,
        draw,
        lambda step: prose(f"{playback.title}.", playback.line(step), playback.notice),
        lambda step: f"{playback.title}\n{playback.table()}\n{playback.notice}",
    )
    return view.show(lambda view: view.live({"step": _steps(view.start["step"], playback)}))


def _steps(now: int, playback: Playback) -> Control:
    """Return the control that chooses the step: a Play button, further buttons and a slider."""
    names = [f"{k} of {playback.steps}" for k in range(1, playback.steps + 1)]
    words = "before the first", *names
    return Control("Step", tuple(range(len(words))), words, now, "player", PACE_MS)
