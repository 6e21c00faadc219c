"""A headless browser for tests and tools that look at pages."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The time between two checks of a waited-for condition. The default, once a frame, keeps the page
# drawing.
POLLING_MS = 100
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


def lacks(what: str) -> None:
    """Skip the test because the machine lacks `what`; fail the test in CI."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{what} is not installed")


@contextmanager
def chromium() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if importlib.util.find_spec("playwright") is None:
        lacks("playwright")
    if path is None:
        lacks("Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
