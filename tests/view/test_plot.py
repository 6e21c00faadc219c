"""A plot draws everything at the place that its scale gives, and names its ticks."""

import pytest

from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot, in_figures


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([0, 20, 40], ["0", "20", "40"]),
        ([0, 2.5, 5], ["0.0", "2.5", "5.0"]),
        ([0.1 + 0.2], ["0.3"]),
        ([0, 5_000], ["0", "5,000"]),
        ([], []),
    ],
)
def test_ticks_are_named_with_as_many_decimals(values: list[float], names: list[str]) -> None:
    assert in_figures(values) == names


@pytest.mark.parametrize("end", [1e-4, 0.7, 1.0, 405.3, 24_248.0])
def test_ticks_are_few_round_and_inside(end: float) -> None:
    ticks = Plot(Page(2.0), 1, 1, 7, 1, end).ticks(8)
    assert 3 <= len(ticks) <= 9
    assert ticks[0] == 0
    assert ticks[-1] <= end < ticks[-1] + 2 * ticks[1]


def test_ink_is_where_the_scale_says() -> None:
    """A bar from 25 to 50 of 100, on a plot 4 inches wide that begins at 1 inch."""
    page = Page(2.0)
    plot = Plot(page, 1.0, 0.5, 4.0, 1.0, end=100)
    plot.bars([(25, 0.25, 50, 0.5)], facecolor="black", linewidth=0)
    page.canvas.draw()
    import numpy as np

    dark = np.asarray(page.canvas.buffer_rgba())[:, :, 0] < 128
    rows, columns = (np.flatnonzero(dark.any(axis=axis)) for axis in (1, 0))
    inches = [at / style.DPI for at in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)]
    assert inches == pytest.approx([2.0, 0.75, 3.0, 1.0], abs=1.5 / style.DPI)
    assert plot.on_page((25, 0.25, 50, 0.5)) == pytest.approx((2.0, 0.75, 3.0, 1.0))


def test_a_line_that_is_too_long_gets_smaller_type() -> None:
    page = Page(1.0)
    text = "Notice, rank 0: exposed communication 188 ms → 36 ms, compute 86 ms → 60 ms, idle time"
    for room in (7.08, 5.0, 3.3):
        page.write_fitting(0.2, 0.5, text, 10, room)
        written = page.figure.texts[-1].get_window_extent()
        assert written.width / style.DPI <= room
        assert written.width / style.DPI > 0.9 * min(room, page.text_width(text, 10))
