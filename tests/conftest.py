"""Markers that need something of the machine: without it the tests are skipped, and say why."""

import importlib.util
import shutil

import pytest


def _no_browser() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return "no Chromium on this machine"
    return None


def _no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device on this machine"


NEEDS = {"browser": _no_browser, "gpu": _no_gpu}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run; ask only about markers that are in use."""
    for name, lacks in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and (reason := lacks()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=f"{name}: {reason}"))
