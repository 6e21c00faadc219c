"""The decks of all labs in a browser: all parts stay on their slides, light and dark, offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ddpkit.authoring import Lesson, make_lab, parse
from ddpkit.authoring.notebook import load
from ddpkit.authoring.slides import make_deck, missing, to_page
from ddpkit.authoring.stale import solution_path
from ddpkit.commands.main import main
from tests.project.source import ROOT, lesson_in, sources

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

# for each slide: its size, the parts outside its margins, and the sizes of its pictures
LOOK = """
() => Array.from({length: Reveal.getTotalSlides()}, (_, number) => {
  Reveal.slide(number);
  const slide = Reveal.getCurrentSlide();
  const parts = [...slide.querySelectorAll("h1, h2, p, pre, table, li, img, math")];
  const boxes = parts.filter(part => !part.closest("aside"))
    .map(part => [part, part.getBoundingClientRect()]);
  return {
    slide: number + 1,
    over: [slide.scrollHeight - slide.clientHeight, slide.scrollWidth - slide.clientWidth],
    code: [...slide.querySelectorAll("pre")].map(each => each.scrollWidth - each.clientWidth),
    out: boxes.filter(([_, box]) => box.right > 1240 || box.bottom > 700 || box.left < 40)
      .map(([part, box]) => `${part.tagName} ends at ${box.right}, ${box.bottom}`),
    pictures: boxes.filter(([part]) => part.tagName == "IMG").map(([_, box]) => box.height),
    paper: getComputedStyle(document.body).backgroundColor,
  };
})
"""
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 31)"}


def opened(browser: Browser, html: str, folder: Path, theme: str) -> tuple[Page, list[str]]:
    """Return a page with a deck, and the addresses that the page loaded besides the deck."""
    path = folder / "deck.html"
    path.write_text(html, "utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.goto(f"{path.as_uri()}?theme={theme}")
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    return page, [each for each in asked if not each.startswith((path.as_uri(), "data:"))]


def problems(page: Page, theme: str) -> list[Any]:
    seen = page.evaluate(LOOK)
    assert {each["paper"] for each in seen} == {PAPER[theme]}
    return [
        each
        for each in seen
        if max(*each["over"], *each["code"], 0) > 0
        or each["out"]
        or min(each["pictures"], default=720) < 200
    ]


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem[:2])
def test_no_slide_overflows(path: Path, browser: Browser, tmp_path: Path) -> None:
    lesson = lesson_in(path)
    teaching = (ROOT / "docs" / "teaching" / f"{lesson.number}.md").read_text("utf-8")
    html = to_page(make_deck(lesson, load(solution_path(ROOT, lesson)), teaching))
    page, asked = opened(browser, html, tmp_path, "light")
    assert asked == [], "a deck is one file"
    assert problems(page, "light") == []
    page.keyboard.press("t")
    assert problems(page, "dark") == []
    page.close()


def test_a_deck_can_be_printed(browser: Browser, tmp_path: Path) -> None:
    """A print has one page for each slide, with margins and the slide's picture."""
    lesson = lesson_in(sources()[0])
    deck = make_deck(lesson, load(solution_path(ROOT, lesson)))
    page, _ = opened(browser, to_page(deck), tmp_path, "light&print-pdf")
    page.wait_for_selector(".pdf-page section")
    seen = page.evaluate(
        """() => [...document.querySelectorAll(".pdf-page")].map(paper => {
          const box = paper.getBoundingClientRect();
          const head = paper.querySelector("h1, h2").getBoundingClientRect();
          const picture = paper.querySelector("img")?.getBoundingClientRect();
          return [head.left - box.left, head.top - box.top, picture ? picture.height : 720];
        })"""
    )
    assert len(seen) == sum("ddpkit" in cell["metadata"] for cell in deck["cells"])
    assert [each for each in seen if each[0] < 40 or each[1] < 30 or each[2] < 200] == []
    page.close()


def test_the_command_writes_a_deck(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["slides", "03", "-o", str(tmp_path / "new")]).output
    assert re.fullmatch(rf"wrote {tmp_path}/new/03_all_reduce.html: \d\d slides\n", said)
    assert "Six ways to sum" in (tmp_path / "new" / "03_all_reduce.html").read_text("utf-8")


def crowded(folder: Path) -> Lesson:
    text = "A sentence of the lesson is here. " * 60
    source = "\n".join(f"# - {text}" for _ in range(4))
    path = folder / "98_far.py"
    path.write_text(f"# %% [markdown]\n# # 98\n\n# %% [markdown]\n# ## Much\n#\n{source}\n")
    return parse(path)


def test_the_look_finds_what_overflows(browser: Browser, tmp_path: Path) -> None:
    lesson = crowded(tmp_path)
    page, _ = opened(browser, to_page(make_deck(lesson, make_lab(lesson))), tmp_path, "dark")
    assert [each["slide"] for each in problems(page, "dark")] == [2]
    page.close()


def test_the_notes_of_a_slide_open_in_a_window(browser: Browser, tmp_path: Path) -> None:
    """The speaker's view needs no server: it opens from a file."""
    lesson = crowded(tmp_path)
    page, _ = opened(browser, to_page(make_deck(lesson, make_lab(lesson))), tmp_path, "light")
    with page.context.expect_page() as window:
        page.keyboard.press("s")
    notes = window.value
    notes.wait_for_selector(".speaker-controls-notes:not(.hidden)", timeout=20_000)
    assert "S opens these notes" in notes.inner_text(".speaker-controls-notes")
    page.close()
