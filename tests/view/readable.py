"""A check that all texts of a figure are readable: inside the page, and not over each other."""

from collections.abc import Iterator
from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox


def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """Yield the visible texts, with their boxes in pixels."""
    for text in figure.texts:
        yield text.get_text(), text.get_window_extent()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        ticks = [*axes.get_xticklabels()] if axes.axison else []
        inside = (tick for tick in ticks if low <= tick.get_position()[0] <= high)
        for text in [*axes.texts, *inside]:
            if text.get_text():
                yield text.get_text(), text.get_window_extent()


def assert_readable(figure: Figure) -> None:
    """Assert that each text is inside the page and over no other text."""
    figure.canvas.draw()
    found, page = list(texts(figure)), figure.bbox
    for text, box in found:
        assert page.x0 <= box.x0, text
        assert box.x1 <= page.x1, text
        assert page.y0 <= box.y0, text
        assert box.y1 <= page.y1, text
    for (a, box), (b, other) in combinations(found, 2):
        across = min(box.x1, other.x1) - max(box.x0, other.x0)
        along = min(box.y1, other.y1) - max(box.y0, other.y0)
        slack = 0.2 * min(box.height, other.height)  # a text's box is taller than its letters
        assert across <= 1 or along <= slack, (a, b)


def luminance(color: tuple[float, float, float]) -> float:
    """Return the relative luminance of a colour, after WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
    return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))
