"""Pictures in a front end: described, sharp, and with readable letters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from matplotlib.figure import Figure

from ddpkit.simulate import pipeline_plans, pipeline_time, schedule
from ddpkit.trace import Span, Trace
from ddpkit.view import (
    Matrix,
    compare,
    explore_buckets,
    explore_pipeline,
    explore_plan,
    explore_scaling,
    explore_state,
    heat_map,
    live,
    play,
    show,
    show_attention,
    show_blocks,
    show_mesh,
    show_pipeline,
    show_routing,
    stack,
    what_if,
)
from ddpkit.view.drawing.display import RULES, picture_html
from tests.view import examples

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LEAST_PX = 9.0
WIDTHS = {"800": 800, "1280": 1280, "1280 at 200 %": 640}  # CSS pixels of the window
SIZES = """all => all.map(each => {
    const { c, d } = each.getScreenCTM(); // of a turned text, too
    return [each.textContent, parseFloat(each.getAttribute('font-size')) * Math.hypot(c, d)];
})"""


def pictures() -> dict[str, Figure | None]:
    """Return a figure of each kind, by the name of the drawing function."""
    trace, steps = examples.ddp(4), examples.ddp(2, steps=4)
    views = {
        "play": play(schedule("ring", 4, 1000)),
        "explore_buckets": explore_buckets(),
        "explore_scaling": explore_scaling(),
        "explore_pipeline": explore_pipeline(),
        "explore_plan": explore_plan(lambda n, batch: max(0.003 * batch, 0.02 + 20e-6 * n), 1000),
        "explore_state": explore_state(lambda count, ranks, stage: 16 * count // ranks),
        "what_if": what_if(steps),
    }
    plans = (pipeline_time(pipeline_plans(name, 4, 8)) for name in ("gpipe", "1f1b"))
    return {
        "show": show(trace),
        "show of 16 ranks": show(examples.ddp(16)),
        "show of copies": show(copies()),
        "compare": compare(examples.ddp(2), examples.ddp(2, seed=1)),
        "stack": stack(steps, examples.ddp(2, steps=4, seed=1)),
        "heat_map": heat_map(steps),
        "show_pipeline": show_pipeline(*plans, labels=["GPipe", "1F1B"]),
        "show_mesh": show_mesh({"replica": 2, "stage": 2, "slice": 2}, rank=5, per_host=2),
        "show_routing": show_routing([[512, 74, 73, 73, 73, 73, 73, 73]] * 4),
        "show_attention": show_attention([range(16), range(16, 32), range(32, 48)]),
        "show_blocks": show_blocks(Matrix("x", 512, 256), Matrix("W", 256, 1024, "columns")),
        "live": live().figure(),
        **{name: view.figure() for name, view in views.items()},
    }


def copies() -> Trace:
    spans = [
        Span(0, "compute", "forward", "forward", 0, 5_000_000),
        Span(0, "copy", "copy", "copy", 1_000_000, 3_000_000, 4096),
    ]
    return Trace(spans, 1, examples.FACTS)


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    figures = {name: figure for name, figure in pictures().items() if figure is not None}
    return {name: picture_html(figure, f"The words of {name}.") for name, figure in figures.items()}


@pytest.mark.browser
def test_no_letter_is_small_and_each_picture_is_described(browser: Browser, drawn: dict[str, str]):
    page = browser.new_page()
    page.set_content(f"<!DOCTYPE html>{RULES}{''.join(drawn.values())}")
    for name in drawn:
        picture = page.get_by_role("img", name=f"The words of {name}.", exact=True)
        assert picture.count() == 1, name
    small = {}
    for window, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        for name, picture in zip(drawn, page.locator("figure").all(), strict=True):
            letters = dict(picture.locator("text").evaluate_all(SIZES))
            assert len(letters) > 3, name
            small |= {(window, name, t): px for t, px in letters.items() if px < LEAST_PX - 0.05}
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls"
    assert small == {}
    page.close()


@pytest.mark.browser
def test_each_theme_has_its_colours(browser: Browser, drawn: dict[str, str]):
    """Regression: dark pages inverted the light blue of forward to navy."""
    page = browser.new_page()
    seen = {}
    for theme in ("true", "false"):
        shown = f"<div data-jp-theme-light={theme}>{drawn['show']}</div>"
        page.set_content(f"<!DOCTYPE html>{RULES}{shown}")
        seen[theme] = page.evaluate(
            """() => ["path[fill='#8fc6ea']", "text[fill='#1f2933']", "path[fill='#ffffff']"]
                .map((each) => getComputedStyle(document.querySelector("svg " + each)).fill)"""
        )
    assert seen["true"] == ["rgb(143, 198, 234)", "rgb(31, 41, 51)", "rgb(255, 255, 255)"]
    assert seen["false"] == ["rgb(143, 198, 234)", "rgb(225, 229, 235)", "rgb(27, 34, 41)"]
    page.close()


def test_a_table_of_the_numbers_comes_with_the_picture():
    text = "\n".join((
        "Two ranks.   Both are fast.",
        "           took   sent",
        "rank 0  1 ms 5%  4 <kB",
        "rank 1     2 ms   8 kB",
    ))  # fmt: skip
    given = picture_html(Figure(), "Two & more", text)
    assert "aria-label='Two &amp; more'" in given
    assert [*re.findall("<th scope='col'>([^<]*)", given)] == ["", "took", "sent"]
    assert "<th scope='row'>rank 0</th><td>1 ms 5%</td><td>4 &lt;kB</td>" in given
    assert "<pre>Two ranks.   Both are fast.</pre>" in given


def test_a_picture_is_the_same_bytes_each_time_and_small(drawn: dict[str, str]):
    figure = show(examples.ddp(4))
    assert figure is not None
    assert picture_html(figure, "The words of show.") == drawn["show"]
    assert len(drawn["show"]) < 90_000
