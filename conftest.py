"""For the tests and for nbval on solutions/: nothing of a run is left in the tree."""

import os
import shutil
import tempfile

import pytest

# A version kept by a check in solutions/ would be carried into later lessons instead of the kit's.
_KEPT = os.environ["DDPKIT_PROGRESS"] = tempfile.mkdtemp(prefix="ddpkit-progress-")


def pytest_unconfigure() -> None:
    shutil.rmtree(_KEPT, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For pytest-xdist: a file stays in one worker, but for tests that are marked as `spread`.

    The cells of a notebook share a kernel, and many files a server or a folder.
    """
    for item in items:
        if not item.get_closest_marker("spread"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
