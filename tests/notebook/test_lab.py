"""In JupyterLab, in a browser: notebooks run from top to bottom, and the stop button stops.

Screenshots are left in tests/artifacts/, to be looked at.
"""

from __future__ import annotations

import importlib.util
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.notebook.kernel import gone
from tests.notebook.lab import FLAGS, IDLE, PANEL, Lab, NotebookPage, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "tests" / "artifacts"
LESSONS = [
    path for name in ("labs", "solutions") if (path := ROOT / name / "00_ranks.ipynb").exists()
]
BROKEN = {
    "exception": """
        def divide():
            share = 12 / (1 - dist.get_rank())
            dist.barrier()
            return share

        cluster.run(divide)
    """,
    "deadlock": """
        def swap():
            inbox = torch.zeros(3)
            dist.recv(inbox, src=1 - dist.get_rank())
            dist.send(torch.ones(3), dst=1 - dist.get_rank())

        cluster.run(swap)
    """,
    "mismatch": """
        def uneven():
            dist.all_reduce(torch.zeros(2 + dist.get_rank()))

        cluster.run(uneven)
    """,
}
ENDLESS = """
    def endless():
        print("rank", dist.get_rank(), "begins")
        if dist.get_rank() == 0:
            dist.recv(torch.zeros(1), src=1)
        while True:
            pass

    cluster.run(endless)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; without it the tests are skipped, but never in CI, which has it."""
    lacks = "playwright" if importlib.util.find_spec("playwright") is None else ""
    lacks = lacks or ("" if chromium() else "Chromium")
    if lacks:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{lacks} is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's folder: copies of the lessons, and a notebook of broken cells."""
    folder = tmp_path_factory.mktemp("student")
    for path in LESSONS:
        lesson = nbformat.read(path, as_version=4)
        for cell in lesson.cells:  # what has a number at the end was run here
            if cell.cell_type == "code":
                cell.execution_count, cell.outputs = None, []
        nbformat.write(lesson, folder / f"{path.parent.name}_{path.name}")
    set_up = """
        import torch
        import torch.distributed as dist
        from ddpkit import Cluster

        cluster = Cluster(2)
    """
    write(folder / "broken.ipynb", set_up, *BROKEN.values())
    write(folder / "endless.ipynb", set_up, ENDLESS, "cluster.run(lambda: 'again').results")
    return folder


def write(path: Path, *sources: str) -> None:
    cells = [new_code_cell(textwrap.dedent(source).strip()) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    title = new_markdown_cell(f"# {path.stem.title()}")
    nbformat.write(new_notebook(cells=[title, *cells], metadata=kernel), path)


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    lab = Lab(folder)
    try:
        yield lab
        processes = lab.processes()
    finally:
        lab.stop()
    assert gone(processes) == [], "Lab left processes"


@pytest.fixture
def opened(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[NotebookPage]:
    """The notebook that the test names, opened in a page of its own."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = NotebookPage(context.new_page(), lab, request.param)
    yield page
    page.command("kernelmenu:shutdown")
    context.close()


def errors(cell: dict[str, Any]) -> list[str]:
    texts = ["\n".join(o["traceback"]) for o in cell["outputs"] if o["output_type"] == "error"]
    return [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize(
    "opened", [f"{path.parent.name}_{path.name}" for path in LESSONS], indirect=True
)
def test_lesson_runs_from_top_to_bottom(opened: NotebookPage, request: pytest.FixtureRequest):
    """A lab stops at cells that use an unanswered exercise, and only there."""
    opened.run_all()
    while failed := [cell for cell in opened.cells() if cell["count"] and errors(cell)]:
        last = failed[-1]["index"]
        if any(cell["count"] for cell in opened.cells() if cell["index"] > last):
            break
        if last == opened.cells()[-1]["index"]:
            break
        opened.run_all(below=last)

    opened.screenshot(ARTIFACTS / f"{request.node.callspec.id.removesuffix('.ipynb')}.png")
    cells = opened.cells()
    assert [cell["index"] for cell in cells if not cell["count"]] == []
    wrong = [text for cell in cells for text in errors(cell) if "your code here" not in text]
    assert wrong == []
    assert not (failed and "solutions" in request.node.callspec.id)
    assert opened.complaints == []


@pytest.mark.parametrize("opened", ["broken.ipynb"], indirect=True)
def test_errors_are_their_explanation(opened: NotebookPage):
    opened.run_all()
    first, *_ = opened.cells()
    for cell in opened.cells()[1:]:
        opened.run_all(below=cell["index"] - 1)
    opened.screenshot(ARTIFACTS / "errors.png")

    shown = ["\n".join(errors(cell)) for cell in opened.cells()[1:]]
    assert errors(first) == []
    for text, error in zip(shown, ("RankError", "Deadlock", "Mismatch"), strict=True):
        assert text.startswith(f"{error}: ")
        assert "Cell In[" in text
        assert "/ddpkit/" not in text
    assert opened.page.get_by_text("each wait to receive before they send").is_visible()
    assert opened.complaints == []


@pytest.mark.parametrize("opened", ["endless.ipynb"], indirect=True)
@pytest.mark.parametrize("way", ["button", "command"])
def test_stop(opened: NotebookPage, way: str):
    _, endless, after = (cell["index"] for cell in opened.cells())
    opened.command("notebook:run-all-cells")
    opened.page.get_by_text("rank 1 begins").wait_for()

    if way == "button":
        opened.page.locator("jp-button[data-command='notebook:interrupt-kernel']").first.click()
    else:
        opened.page.evaluate("() => { jupyterapp.commands.execute('notebook:interrupt-kernel'); }")
    opened.wait(f"window.done && {IDLE}")
    opened.screenshot(ARTIFACTS / "stopped.png")

    outputs = str(next(cell["outputs"] for cell in opened.cells() if cell["index"] == endless))
    assert "KeyboardInterrupt" in outputs
    assert "rank 0 waits in recv(src=1)" in outputs
    assert "rank 1 was in Cell In[2], line" in outputs

    opened.run_all(below=after - 1)
    assert "['again', 'again']" in str(opened.cells()[-1]["outputs"])
    assert opened.complaints == []
    assert opened.page.evaluate(f"() => {PANEL}.sessionContext.session.kernel.status") == "idle"
