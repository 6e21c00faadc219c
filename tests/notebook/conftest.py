"""Kernels, and JupyterLab, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.notebook.kernel import SET_UP, Notebook, gone
from tests.notebook.lab import WINDOW, Lab, NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    """Yield a kernel for all tests of a module; its first cell makes `cluster`, with two ranks."""
    notebook = Notebook()
    try:
        notebook.ok(SET_UP)
        yield notebook
        left = notebook.processes()
    finally:
        notebook.close()
    assert not gone(left), "the kernel left processes"


@pytest.fixture
def fresh() -> Iterator[Notebook]:
    """Yield a kernel for one test, which may break the kernel."""
    notebook = Notebook()
    try:
        yield notebook
    finally:
        notebook.close()


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    """Yield JupyterLab for all tests of a module; it shows the `folder` that the module makes."""
    lab = Lab(folder)
    try:
        yield lab
        processes = lab.processes()
    finally:
        lab.stop()
    assert gone(processes) == [], "Lab left processes"


@pytest.fixture(scope="module")
def pages() -> list[NotebookPage]:
    """Return the list of open pages: the next test finds the last test's page, if that passed."""
    return []


@pytest.fixture
def opened(
    lab: Lab, browser: Browser, pages: list[NotebookPage], request: pytest.FixtureRequest
) -> Iterator[NotebookPage]:
    """Yield the notebook that the test names, opened in Lab.

    A new start of Lab would take half of a short test.
    """
    failed = request.session.testsfailed
    if pages:
        page = pages.pop()
        page.open(request.param)
    else:
        page = NotebookPage(browser.new_page(viewport=WINDOW), lab, request.param)
    yield page
    page.shut_down()
    page.close_all()
    if request.session.testsfailed == failed:
        pages.append(page)
    else:
        page.page.close()
