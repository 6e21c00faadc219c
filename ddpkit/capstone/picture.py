"""A plot of the kept scores: time, bytes and memory of each training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpkit.capstone.score import TrainingScore, best, kept_scores
from ddpkit.capstone.task import GIVEN_MS, GIVEN_PEAK, GIVEN_SENT
from ddpkit.view.drawing.display import display_picture, in_ipython
from ddpkit.view.drawing.style import WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AREA = 60  # area of a dot, in square points per MB of memory


def show_costs() -> Figure | None:
    """Draw your scores: time to the right, bytes upwards, memory as the size of the dot.

    A filled dot is a score on the Pareto front (see `best`). The function prints the names of the
    scores on the front. Outside IPython the function returns the figure.
    """
    script = TrainingScore("given script", GIVEN_MS, 0.0, GIVEN_SENT, GIVEN_PEAK)
    scores = [script, *kept_scores()]
    figure, front = _drawn(scores), ", ".join(each.name for each in best(scores))
    displayed = in_ipython()
    if displayed:
        words = f"Time, bytes and memory of {len(scores)} trainings"
        display_picture(figure, words, _table(scores))
    print("Beaten by no other:", front)
    return None if displayed else figure


def _table(scores: Sequence[TrainingScore]) -> str:
    rows = [f"{one.ms:.0f} ms  {one.sent / 1e6:.1f} MB  {one.peak / 1e6:.1f} MB" for one in scores]
    named = (f"{one.name}  {row}" for one, row in zip(scores, rows, strict=True))
    return "\n".join(["time  bytes  memory", *named])


def _drawn(scores: Sequence[TrainingScore]) -> Figure:
    from matplotlib import style
    from matplotlib.figure import Figure

    unbeaten = best(scores)
    with style.context("ddpkit.view.plain"):
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        for one in scores:
            at = one.ms, one.sent / 1e6
            face = "C0" if one in unbeaten else "none"
            axes.scatter(*at, s=AREA * one.peak / 1e6, facecolors=face, edgecolors="C0")
            text = f"{one.name}, {one.peak / 1e6:.1f} MB"
            axes.annotate(text, at, xytext=(0, 12), textcoords="offset points", ha="center")
        axes.set(xlabel="time, ms", ylabel="sent, MB", title="Time, bytes and memory")
        axes.set_xlim(0, 1.15 * max(one.ms for one in scores))
        axes.set_ylim(0, 1.25 * max(one.sent for one in scores) / 1e6)
    return figure
