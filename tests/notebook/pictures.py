"""Pictures of lessons as in a reader's notebook: with text around, at two widths, in both themes.

`python -m tests.notebook.pictures 07 08` writes the pictures to tests/artifacts/pictures/, two on a
sheet. With `--run` the browser runs the lessons first, so that controls are live.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from PIL import Image

from ddpkit.view.drawing.display import RULES
from tests.browser import chromium
from tests.notebook.lab import Lab, NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect

ROOT = Path(__file__).resolve().parents[2]
SHEETS = ROOT / "tests" / "artifacts" / "pictures"
WIDTHS = (1000, 1600)  # pixels of the browser's window
THEMES = ("Light", "Dark")
PAIRS = {"a": ("light_1000", "dark_1600"), "b": ("dark_1000", "light_1600")}
SHOWN = ".ddpkit-shown canvas, .ddpkit-drawn, .jp-RenderedImage img"


def in_each_setting(page: NotebookPage) -> Iterator[str]:
    """Give the page one setting after the other, and yield the setting's name."""
    for theme in THEMES:
        page.theme(theme)
        for width in WIDTHS:
            page.page.set_viewport_size({"width": width, "height": 1200})
            page.page.wait_for_timeout(1000)  # until Lab has arranged the page again
            yield f"{theme.lower()}_{width}"


def with_pictures(page: NotebookPage) -> list[int]:
    """Return the positions of the cells that show a picture."""
    found: list[int] = page.page.evaluate(
        f"""() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].flatMap((cell, index) =>
            [...cell.querySelectorAll({SHOWN!r})].some(each => each.offsetWidth) ? [index] : [])"""
    )
    return found


def around(page: NotebookPage, index: int) -> FloatRect:
    """Return the part of the window with a cell, the two cells above and the cell below."""
    cells = page.page.locator(".jp-Notebook .jp-Cell")
    first, last = max(0, index - 2), min(index + 1, cells.count() - 1)
    heights = [cells.nth(k).evaluate("cell => cell.offsetHeight") for k in range(first, last + 1)]
    size = page.page.viewport_size
    assert size is not None
    page.page.set_viewport_size({"width": size["width"], "height": sum(heights) + 200})
    cells.nth(first).evaluate("cell => cell.scrollIntoView()")
    page.page.wait_for_timeout(300)
    boxes = [cells.nth(k).bounding_box() for k in (first, last)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    top, bottom = max(0, boxes[0]["y"]), boxes[1]["y"] + boxes[1]["height"]
    left = boxes[0]["x"]  # without the side panels of Lab
    return {"x": left, "y": top, "width": size["width"] - left, "height": bottom - top}


def sheet(pictures: list[Path], path: Path) -> None:
    """Write one picture that has several pictures side by side."""
    opened = [Image.open(each) for each in pictures]
    size = sum(each.width for each in opened), max(each.height for each in opened)
    whole, x = Image.new("RGB", size, "#808080"), 0
    for each in opened:
        whole.paste(each, (x, 0))
        x += each.width
    whole.save(path)


def take(page: NotebookPage, lesson: str) -> None:
    """Photograph each picture of an opened notebook in each setting."""
    indices, taken = with_pictures(page), list[Path]()
    for setting in in_each_setting(page):
        for index in indices:
            path = SHEETS / f"{lesson}_{index:03}_{setting}.png"
            page.page.screenshot(path=path, clip=around(page, index))
            taken.append(path)
    for index in indices:
        for name, settings in PAIRS.items():
            each = [SHEETS / f"{lesson}_{index:03}_{setting}.png" for setting in settings]
            sheet(each, SHEETS / f"{lesson}_{index:03}_{name}.png")
    for path in taken:
        path.unlink()


def renew(path: Path) -> None:
    """Replace the style rules in a notebook's saved pictures by the present rules of ddpkit."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "ddpkit-drawing" in output.get("data", {}).get("text/html", ""):
                old = output["data"]["text/html"]
                output["data"]["text/html"] = re.sub(
                    "<style.*</style>", RULES, old, flags=re.DOTALL
                )
    nbformat.write(notebook, path)


def open_lesson(browser: Browser, lab: Lab, saved: Path) -> NotebookPage:
    """Return a page of Lab with a copy of a solved lesson."""
    copy = lab.folder / saved.name
    shutil.copy(saved, copy)
    renew(copy)
    lab.trust(copy)
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    return NotebookPage(page, lab, copy.name)


def failed(page: NotebookPage) -> list[str]:
    """Return the errors that the cells of a page show."""
    outputs = [output for cell in page.cells() for output in cell["outputs"]]
    return [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]


def main() -> None:
    """Read the command line, and photograph one lesson after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "lessons", nargs="+", help="numbers, or notebooks with outputs: 07 mine.ipynb"
    )
    parser.add_argument("--run", action="store_true", help="run each lesson in the browser first")
    chosen = parser.parse_args()
    SHEETS.mkdir(parents=True, exist_ok=True)
    lab = Lab(Path(tempfile.mkdtemp(prefix="pictures-")))
    try:
        with chromium() as browser:
            for name in chosen.lessons:
                (saved,) = (
                    (ROOT / "solutions").glob(f"{name}_*.ipynb") if len(name) == 2 else [Path(name)]
                )
                page = open_lesson(browser, lab, saved)
                if chosen.run:
                    page.run_all(limit_ms=600_000)
                take(page, saved.stem)
                print(f"{saved.stem}: errors {failed(page)}, complaints {page.complaints}")
                page.shut_down()
                page.page.close()
    finally:
        lab.stop()
        shutil.rmtree(lab.folder)


if __name__ == "__main__":
    main()
