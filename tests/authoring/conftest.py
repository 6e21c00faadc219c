"""A small repository with one lesson, which needs no ranks and no lesson engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ddpkit import authoring as release

LESSON = '''# %% [markdown]
# # Adding up
#
# In this notebook we will add.

# %%
from math import gcd, prod
import torch.nn as nn, functools

# %%
import asyncio


def check(answer):
    """Stands for ddpkit's."""
    print(f"{answer.__name__}: passed, 1 of 1 case.")


# %% tags=["answers"]
START = 0

# %% [markdown]
# Write `total`, and remember that `START` is where it starts.

# %% exercise="total"
def total(values):
    """The sum of values."""
    # BEGIN SOLUTION
    running = START  # not zero, in general

    # the loop
    for value in values:
        running = running + value
    return running
    # END SOLUTION


# %% check="total"
check(total)

# %% exercise="Adder"
class Adder(nn.Module if False else object):
    def __init__(self, first):
        # BEGIN SOLUTION
        self.values_so_far = [first]
        # END SOLUTION

    async def add(self, value):
        """Adds, and waits."""

        def factor():
            # BEGIN SOLUTION
            return prod([1, 1, gcd(2, 3)])
            # END SOLUTION

        self.values_so_far.append(value * factor())


# %% check="Adder"
check(Adder)

# %%
print(total([1, 2, 3]))
'''


@pytest.fixture
def lesson_text() -> str:
    return LESSON


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one unreleased lesson."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "00_adding.py").write_text(LESSON)
    return tmp_path


@pytest.fixture
def lesson(root: Path) -> release.Lesson:
    return release.parse(root / "solutions" / "00_adding.py")


@pytest.fixture(scope="session")
def _released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    (folder / "solutions").mkdir()
    (folder / "solutions" / "00_adding.py").write_text(LESSON)
    release.release(folder)
    return folder


@pytest.fixture
def released(_released: Path, tmp_path: Path) -> Path:
    """Return the same repository, released: a new copy for each test."""
    return Path(shutil.copytree(_released, tmp_path / "repository"))
