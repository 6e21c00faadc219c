"""Kernels for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.notebook.kernel import SET_UP, Notebook, gone


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    """A kernel for all tests of a module, with `cluster`, two ranks, made in its first cell."""
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
    """A kernel for one test, which may break it."""
    notebook = Notebook()
    try:
        yield notebook
    finally:
        notebook.close()
