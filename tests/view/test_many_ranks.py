"""The explorer with hundreds of ranks, by keys, by touch and by buttons, and zoomed out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ddpkit.trace import Span, Trace
from ddpkit.view.drawing import style
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.explorer.page import page_bytes
from tests.view import examples
from tests.view.test_canvas import opened
from tests.view.test_page import opened as opened_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
MS = 1_000_000
AXIS, LEFT = 24, 104
TEXTS = """
window.texts = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  window.texts.push([text, x + this.measureText(text).width]);
  write.call(this, text, x, y);
};
"""


def many(ranks: int = 600, steps: int = 2) -> Trace:
    """Return a trace in which a rank waits less than the rank before; rank 0 is the worst."""
    spans = []
    for rank in range(ranks):
        for k in range(steps):
            at, computed = 1000 * MS * k, (100 + rank) * MS
            spans += [
                Span(rank, "step", "step", "step", at, at + 1000 * MS),
                Span(rank, "compute", f"layer of {rank}", "forward", at, at + computed),
                Span(rank, "comm", "all_reduce", "comm", at + computed, at + 900 * MS, 4),
            ]
    return Trace(spans, ranks, {"backend": "gloo", "device": "cpu"})


def view(tab: Page) -> list[float]:
    found: list[float] = tab.get_by_role("application").evaluate(
        "(it) => it.parentElement.parentElement.explorer.view"
    )
    return found


def columns_of(tab: Page, x: int, y: int, wide: int, high: int) -> list[list[str]]:
    """Return the colours of a part of the canvas, column by column."""
    data = tab.get_by_role("application").evaluate(
        "(it, box) => [...it.getContext('2d').getImageData(...box).data]", [x, y, wide, high]
    )
    return [
        ["#" + bytes(data[4 * (wide * v + u) :][:3]).hex().upper() for v in range(high)]
        for u in range(wide)
    ]


@pytest.fixture(scope="module")
def file_of_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "page.html"
    path.write_bytes(page_bytes(many()))
    return path


@pytest.mark.parametrize("width", [800, 1280])
def test_600_ranks_are_seen(browser: Browser, file_of_many: Path, width: int) -> None:
    """Regression: the canvas was 69,264 pixels high, which no browser draws."""
    size: Any = {"width": width, "height": 720}
    tab, heard = opened_file(browser, file_of_many, viewport=size)
    drawn, said = tab.get_by_role("application"), tab.get_by_role("status")
    box: Any = drawn.bounding_box()
    assert box["height"] < 300  # the height of three ranks
    tab.get_by_role("button", name="Show all 600 ranks").click()
    search = tab.get_by_role("searchbox", name="Find a rank or a bar")
    search.fill("rank 599")
    search.press("Enter")
    assert said.inner_text().startswith("layer of 599 · rank 599")
    box, over = drawn.bounding_box(), said.bounding_box()
    assert box["height"] <= 560
    assert over is not None
    assert 0 <= box["y"] - over["y"] - over["height"] < 20  # the text is near the canvas
    tab.wait_for_timeout(100)
    wide = box["width"] - LEFT
    shown = columns_of(tab, round(LEFT + 0.1 * wide), AXIS, 1, round(box["height"]) - AXIS)[0]
    assert style.FORWARD in shown
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert heard == []
    tab.context.close()


def test_few_ranks_are_shown_first(browser: Browser) -> None:
    columns, failed = span_columns(many(20)), list[str]()
    few = [(0, "rank 0 (worst)"), (9, "rank 9 (median)"), (19, "rank 19 (best)")]
    tab = opened(browser, columns, failed, TEXTS, few=few)
    assert tab.get_by_text("rank 0 (worst), rank 9 (median), rank 19 (best)").is_visible()
    tab.wait_for_function("window.texts.length > 3")
    titles = [text for text, _ in tab.evaluate("window.texts") if text.startswith("rank")]
    assert set(titles) == {"rank 0", "rank 9", "rank 19"}
    search = tab.get_by_role("searchbox")
    search.fill("layer of 5")
    search.press("Enter")
    assert "rank 5" in tab.get_by_role("status").inner_text()  # rank 5 was hidden
    assert tab.get_by_role("button", name="Show three ranks").is_visible()
    assert tab.get_by_text("(median)").count() == 0
    assert failed == []
    tab.close()


def test_keys_go_from_bar_to_bar_and_skip_no_row(browser: Browser) -> None:
    failed: list[str] = []
    tab = opened(browser, span_columns(many(3)), failed)
    drawn, said = tab.get_by_role("application"), tab.get_by_role("status")
    rows, told = [], []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"):
        drawn.press(key)
        told.append(said.inner_text())
        rows.append(drawn.evaluate("(it) => it.parentElement.parentElement.explorer.row.number"))
    assert rows == [0, 1, 2, 1, 1, 1]
    assert told[0].startswith("layer of 0 · rank 0")
    assert all("rank" in each for each in told)
    assert told[3] == told[5] != told[4]  # to the left, and back
    assert told[4].startswith("all_reduce · rank 0")
    assert failed == []
    tab.close()


def test_buttons_have_names_and_move_it(browser: Browser) -> None:
    columns, failed = span_columns(many(3, steps=4)), list[str]()
    tab = opened(browser, columns, failed)
    whole = view(tab)
    seen = []
    for name in ("Zoom in", "Zoom out", "Next step", "Next step", "Previous step"):
        tab.get_by_role("button", name=name).click()
        seen.append([round(tick * columns.tick_ns / MS) for tick in view(tab)])
    assert seen == [[1000, 3000], [0, 4000], [0, 1000], [1000, 2000], [0, 1000]]
    tab.get_by_role("button", name="Show all of the time").click()
    assert view(tab) == whole
    nameless = tab.locator("button:not([aria-label]), input:not([aria-label])")
    assert nameless.count() == 0
    assert failed == []
    tab.close()


def test_it_is_touched(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(page_bytes(examples.ddp(2)))
    tab, heard = opened_file(browser, path, has_touch=True)
    drawn = tab.get_by_role("application")
    box: Any = drawn.bounding_box()
    tab.touchscreen.tap(box["x"] + 300, box["y"] + AXIS + 12)
    assert "rank 0" in tab.get_by_role("status").inner_text()
    before, touch = view(tab), tab.context.new_cdp_session(tab)
    for kind, apart in (("Start", 50), ("Move", 80), ("Move", 120), ("End", None)):
        at = [] if apart is None else [
            {"x": box["x"] + 500 + side * apart, "y": box["y"] + 40, "id": side + 1}
            for side in (-1, 1)
        ]  # fmt: skip
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": at})
    tab.wait_for_timeout(100)
    after = view(tab)
    assert after[1] - after[0] == pytest.approx((before[1] - before[0]) * 50 / 120, rel=0.1)
    assert heard == []
    tab.context.close()


def test_zoomed_out_waiting_is_seen_and_equal_steps_look_alike(browser: Browser) -> None:
    """Regression: only a pixel's largest kind was drawn, so waiting communication looked solid."""
    spans = [
        Span(0, "comm", "all_reduce", "comm", 10 * k, 10 * k + 10, 4, ready_ns=10 * k + 8)
        for k in range(20_000)
    ]
    columns, failed = span_columns(Trace(spans, 2, {"backend": "gloo"})), list[str]()
    tab = opened(browser, columns, failed)
    tab.wait_for_timeout(100)
    row = columns.rows[-1]
    seen = columns_of(tab, LEFT + 20, AXIS + row.top, 600, row.height)
    shares = [sum(color == style.WAITING for color in column) / row.height for column in seen]
    assert min(shares) > 0.7
    assert max(shares) < 0.9
    assert max(shares) - min(shares) < 0.1
    assert failed == []
    tab.close()


@pytest.mark.parametrize(("length_ns", "unit"), [(400_000 * MS, "s"), (MS, "ms"), (900, "ns")])
def test_the_axis_has_fitting_units_and_a_whole_last_label(
    browser: Browser, length_ns: int, unit: str
) -> None:
    failed: list[str] = []
    trace = Trace([Span(0, "compute", "f", "forward", 0, length_ns)], 1)
    tab = opened(browser, span_columns(trace), failed, TEXTS)
    tab.wait_for_function("window.texts.length > 3")
    times = [each for each in tab.evaluate("window.texts") if re.fullmatch(r"[\d.]+ .?s", each[0])]
    assert {text.split()[1] for text, _ in times} == {unit}
    assert all(right <= 1000 for _, right in times)
    assert failed == []
    tab.close()
