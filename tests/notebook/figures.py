"""The figures of ddpkit.view in JupyterLab: cells that show figures, and actions of a reader."""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING

from ddpkit.view.drawing.shell import NOT_LIVE
from tests.notebook.lab import LIMIT_MS, PANEL, NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

CELLS = {  # each cell leaves a picture, a text, and controls if the figure has some
    "recorded": """
        from ddpkit.simulate import assign_buckets, replay, schedule
        from ddpkit.view import compare, explore, explore_buckets, explore_pipeline, explore_scaling
        from ddpkit.view import heat_map, play, show, what_if
        from ddpkit.view.drawing.steps import example_step

        def step_with(cap_mb):
            step = example_step()
            buckets = assign_buckets(step.gradients, cap_mb)
            return replay(step, 2, "5 Gbit/s, 200 us", buckets).trace()
    """,
    "show": "show(step_with(5), step=0)",
    "compare": "compare(step_with(1000), step_with(5), labels=['flat', 'bucketed'])",
    "heat_map": "heat_map(step_with(5))",
    "explore_buckets": "explore_buckets()",
    "explore_scaling": "explore_scaling()",
    "explore_pipeline": "explore_pipeline()",
    "play": "play(schedule('ring', 4, 1000))",
    "what_if": "what_if(step_with(25), slow={1: 2})",
    "explore": "explore(step_with(5))",
}


LIVE_DRAWING = ".ddpkit-shown .ddpkit-drawn"
SEEN = ".jp-RenderedHTML .ddpkit-drawn:visible, .jp-RenderedImage img:visible"
DARK_GROUND = "rgb(27, 34, 41)"
STILL = ".jp-RenderedHTML .ddpkit-drawn:not(.ddpkit-shown *)"
LIVE = ("explore_buckets", "explore_scaling", "explore_pipeline", "play", "what_if", "explore")


def _cell(page: NotebookPage, figure: str) -> Locator:
    """Return the cell of a figure."""
    index = [cell["index"] for cell in page.cells()][list(CELLS).index(figure)]
    return page.page.locator(".jp-Notebook .jp-Cell").nth(index)


def slider_moves(opened: NotebookPage) -> float:
    """Move a slider by keys; return the median ms from a key to the new picture."""
    cell = _cell(opened, "explore_buckets")
    picture, handle = cell.locator(LIVE_DRAWING).first, cell.get_by_role("slider").first
    handle.focus()
    times = []
    for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        before, start = picture.inner_html(), time.perf_counter()
        handle.press(key)
        opened.page.wait_for_function(
            f"([cell, before]) => cell.querySelector({LIVE_DRAWING!r}).innerHTML !== before",
            arg=[cell.element_handle(), before],
        )
        times.append(1000 * (time.perf_counter() - start))
    said = cell.get_by_role("status").inner_text()
    assert "Best cap: " in said
    assert "Cap 25 MB" not in said
    return statistics.median(times)


def numbers_follow(opened: NotebookPage, index: int) -> None:
    """Press a key on the first slider of a lab's cell; the numbers in the text must change."""
    cell = opened.page.locator(".jp-Notebook .jp-Cell").nth(index)
    handle = cell.get_by_role("slider").first
    handle.scroll_into_view_if_needed()
    numbers = """cell => cell.querySelector("[role=status]")?.innerText.match(/[0-9.]+/g)?.join()"""
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight"):
        before = cell.evaluate(numbers)
        assert before
        handle.press(key)
        opened.page.wait_for_function(
            f"([cell, before]) => ![before, undefined].includes(({numbers})(cell))",
            arg=[cell.element_handle(), before],
        )


def bars_are_told(opened: NotebookPage, index: int) -> None:
    """Move the mouse over a timeline in a lab's cell; the text must name several bars."""
    cell = opened.page.locator(".jp-Notebook .jp-Cell").nth(index)
    canvas, said = cell.get_by_role("application"), cell.get_by_role("status")
    canvas.scroll_into_view_if_needed()
    told = set()
    for x in range(120, 700, 20):
        canvas.hover(position={"x": x, "y": 40})
        told.add(said.inner_text())
    assert len([text for text in told if re.search("rank 0.* ms, from .* ms to .* ms", text)]) > 1


def player_steps(opened: NotebookPage) -> None:
    """Check that buttons and player move the live picture, and that the cell's first text stays."""
    from playwright.sync_api import expect

    cell = _cell(opened, "play")
    said = cell.get_by_role("status")
    for button, words in (
        *(("Next", "Step 2 of 6"), ("Last", "Step 6 of 6"), ("Back", "Step 5 of 6")),
        *(("First", "Before the first step"), ("Next", "Step 1 of 6")),
    ):
        cell.get_by_role("button", name=button, exact=True).click()
        expect(said).to_contain_text(words, timeout=LIMIT_MS)
    cell.get_by_role("button", name="Play", exact=True).click()
    expect(said).to_contain_text(re.compile("Step [2-6] of 6"), timeout=LIMIT_MS)
    cell.get_by_role("button", name=re.compile("Pause|Play")).click()


def explorer_answers(opened: NotebookPage) -> None:
    """Check hover, wheel, drag and keys, and that the focus is visible."""
    from playwright.sync_api import expect

    cell = _cell(opened, "explore")
    canvas, said = cell.get_by_role("application"), cell.get_by_role("status")
    canvas.scroll_into_view_if_needed()
    expect(said).to_contain_text("Point at a bar")
    canvas.hover(position={"x": 130, "y": 40})
    expect(said).to_have_text(re.compile("^forward.*rank 0.*55 ms, from 0 ms to 55 ms$"))
    pictures = [canvas.screenshot()]

    def changed() -> bool:
        opened.page.wait_for_timeout(100)  # one frame
        pictures.append(canvas.screenshot())
        return pictures[-1] != pictures[-2]

    canvas.click(position={"x": 300, "y": 40})
    assert "solid" in canvas.evaluate("canvas => getComputedStyle(canvas).outlineStyle")
    assert changed()
    opened.page.mouse.wheel(0, -600)
    assert changed()
    x, y = (canvas.bounding_box()[side] + 300 for side in ("x", "y"))
    opened.page.mouse.move(x, y - 260)
    opened.page.mouse.down()
    opened.page.mouse.move(x - 150, y - 260)
    opened.page.mouse.up()
    assert changed()
    for key in ("+", "-", "ArrowRight", "ArrowLeft", "Home"):
        canvas.press(key)
        assert changed(), key
    canvas.press("ArrowDown")
    expect(said).to_have_text(re.compile("rank 0.*ms, from"))
    assert opened.page.evaluate(f"{PANEL}.content.mode") == "command"


def one_picture_each(opened: NotebookPage) -> None:
    """Check that live controls hide the still picture and the text of their cell."""
    for name in LIVE:
        cell = _cell(opened, name)
        shown = f".ddpkit-shown canvas, {LIVE_DRAWING}"
        cell.locator(shown).first.scroll_into_view_if_needed()
        assert cell.locator(shown).first.is_visible(), name
        assert not cell.locator(STILL).first.is_visible(), name
        assert not cell.locator(".jp-RenderedImage img").first.is_visible(), name
        assert not cell.locator(".jp-RenderedText pre").first.is_visible(), name
    assert _cell(opened, "show").locator(STILL).first.is_visible()
    assert not _cell(opened, "show").locator(".jp-RenderedImage img").first.is_visible()


def described(opened: NotebookPage) -> None:
    """Check that a screen reader finds each picture with a description, and a table of numbers."""
    for name in list(CELLS)[1:]:
        cell = _cell(opened, name)
        if name != "explore":
            picture = cell.get_by_role("img").first
            assert len(picture.get_attribute("aria-label") or "") > 40, name
    cell = _cell(opened, "show")
    cell.get_by_text("This picture in words and numbers").click()
    cell.get_by_role("rowheader", name="rank 0").wait_for()


def controls_are_named(opened: NotebookPage) -> None:
    """Check that each control has a name and a value in words in the accessibility tree."""
    said = {}
    for name in LIVE:
        cell = _cell(opened, name)
        controls = cell.locator(".ddpkit-shown").get_by_role("slider").all()
        controls += cell.locator(".ddpkit-shown").get_by_role("combobox").all()
        controls += cell.locator(".ddpkit-shown").get_by_role("button").all()
        assert controls, name
        for control in controls:
            tree = control.aria_snapshot()
            assert re.match(r'- \w+ "[A-Za-z+−][^"]*"', tree), (name, tree)
            if "slider" in tree:
                words = control.get_attribute("aria-valuetext") or ""
                assert re.search("[a-z%0-9]", words), (name, tree)
                said.setdefault(re.findall('"([^"]*)"', tree)[0], words)
    assert said["Bandwidth"] == "10 Gbit/s"
    assert said["Step"].endswith("of 6")


def runs_again(opened: NotebookPage) -> None:
    """Check that a cell keeps its height during a second run, without a jump of the page."""
    cell = _cell(opened, "explore_buckets")
    cell.scroll_into_view_if_needed()
    index = [cell["index"] for cell in opened.cells()][list(CELLS).index("explore_buckets")]
    before = cell.bounding_box()
    assert before
    opened.page.evaluate(
        """([cell]) => {
            window.heights = [];
            const watch = () => { heights.push(cell.offsetHeight); requestAnimationFrame(watch); };
            watch();
        }""",
        [cell.element_handle()],
    )
    opened.run_cell(index)
    cell.get_by_role("slider").first.wait_for()
    opened.page.wait_for_timeout(500)
    heights = opened.page.evaluate("heights")
    assert min(heights) > 0.9 * before["height"], heights[:: max(1, len(heights) // 50)]


def dark(opened: NotebookPage) -> None:
    """Check that no picture is white in the dark theme."""
    opened.theme("Dark")
    for name in ("show", "play"):
        ground = _cell(opened, name).locator(".ddpkit-drawn svg > path:visible").first
        assert ground.evaluate("node => getComputedStyle(node).fill") == DARK_GROUND, name
    canvas = _cell(opened, "explore").get_by_role("application")
    canvas.scroll_into_view_if_needed()
    opened.page.wait_for_timeout(1000)  # Lab hides everything while it changes the theme
    assert canvas.evaluate("node => getComputedStyle(node).backgroundColor") == DARK_GROUND
    assert canvas.evaluate(
        "node => node.getContext('2d').getImageData(0, 0, node.width || 1, node.height).data"
        ".some((value) => value > 0)"
    )


def steps_in_the_dark(page: NotebookPage, index: int) -> None:
    """Check that a lab's player works, is not white, and is the only picture of its cell."""
    from playwright.sync_api import expect

    front = page.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    cell = front.locator(".jp-Notebook .jp-Cell").nth(index)
    picture = cell.locator(".ddpkit-drawn:visible, img:visible")
    picture.first.scroll_into_view_if_needed()
    assert picture.count() == 1
    ground = picture.locator("svg > path").first
    assert ground.evaluate("node => getComputedStyle(node).fill") == DARK_GROUND
    cell.get_by_role("button", name="Next", exact=True).click()
    expect(cell.get_by_role("status")).to_contain_text("Step 2 of", timeout=LIMIT_MS)


def all_trusted(page: NotebookPage) -> bool:
    cells = f"{PANEL}.content.widgets.filter(cell => cell.model.type === 'code')"
    return bool(page.page.evaluate(f"() => {cells}.every(cell => cell.model.trusted)"))


def says_it_is_not_live(page: NotebookPage) -> None:
    """Check the text in place of controls: a widget that is not live is no error."""
    from playwright.sync_api import expect

    for name in LIVE:
        last = _cell(page, name).locator(".jp-OutputArea-output").last
        expect(last).not_to_have_text("Loading widget...")
        shown = last.evaluate("node => getComputedStyle(node, '::before').content")
        # the hidden text is not part of inner_text()
        assert NOT_LIVE in (shown + last.inner_text()), name
        assert "Error" not in last.inner_text(), name


def lessons_in_the_dark(page: NotebookPage) -> None:
    """Check that saved pictures are inverted; in a narrow page, lines of tables stay whole."""
    page.page.set_viewport_size({"width": 1000, "height": 900})
    page.theme("Dark")
    images = page.page.locator(".jp-OutputArea-output.jp-RenderedImage img:visible")
    filters = images.evaluate_all("all => all.map(each => getComputedStyle(each).filter)")
    assert [said for said in filters if "invert" not in said] == []
    below = ".jp-OutputArea-child:has(.ddpkit-drawing) ~ * .jp-RenderedText pre"
    texts = page.page.locator(below).evaluate_all(
        """all => all.map(text => {
            const lines = text.scrollHeight / parseFloat(getComputedStyle(text).lineHeight);
            return [text.innerText, lines, text.innerText.trimEnd().split('\\n').length];
        })"""
    )
    assert len(texts) > 20
    assert [text for text, lines, written in texts if round(lines) > written] == []


def all_seen(page: NotebookPage, *, trusted: bool) -> None:
    """Check that each cell shows picture and text without a run.

    In an untrusted notebook, Lab shows only the PNG, and no word of the drawing.
    """
    for name in list(CELLS)[1:]:
        cell = _cell(page, name)
        drawing, image = cell.locator(STILL).first, cell.locator(".jp-RenderedImage img").first
        seen, hidden = (drawing, image) if trusted else (image, drawing)
        seen.scroll_into_view_if_needed()
        assert seen.is_visible(), name
        assert not hidden.is_visible(), name
        if not trusted:
            assert image.evaluate("image => image.complete && image.naturalWidth") > 900, name
        assert cell.get_by_text("This picture in words and numbers").is_visible(), name
        assert len(cell.locator(".jp-RenderedText").first.inner_text()) > 80, name
