"""Fixtures of the tests of lessons: a student's folder, student code, and toy exercises."""

import itertools
import linecache
import textwrap

import pytest

from ddpkit.exercises.exercise import REGISTRY, Case, exercise
from ddpkit.exercises.hint import Hint

_cells = itertools.count(1)
LAST = Hint("last", lambda s: s.total == sum(s.numbers[:-1]), "The last number counts too.")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Give every test a folder of its own, without a seed, and without variables of torchrun."""
    monkeypatch.chdir(tmp_path)
    for name in ("DDPKIT_SEED", "DDPKIT_PROGRESS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def registry():
    """Yield the registry of exercises; afterwards, remove the exercises that the test registered.

    Exercises of labs stay: Python imports a lab only once, so a removed exercise would not be
    registered again.
    """
    before = dict(REGISTRY)
    yield REGISTRY
    labs = {
        name: each
        for name, each in REGISTRY.items()
        if each.cases.__module__.startswith("ddpkit.checks.")
    }
    REGISTRY.clear()
    REGISTRY.update(labs | before)


@pytest.fixture
def toy_sum(registry):
    """Register an exercise with three cases: sum up `numbers`, without changing them."""

    @exercise("toy_sum", lab="99", points=3)
    def cases(answer, rng):
        """Add up numbers."""
        for size in (0, 1, 4):
            numbers = [rng.randrange(10, 100) for _ in range(size)]
            yield Case(
                f"{size} number{'s' * (size != 1)}",
                observe=lambda numbers=numbers: {"total": answer(numbers)},
                expect={"total": sum(numbers)},
                hints=[LAST],
                given={"numbers": numbers},
            )

    return REGISTRY["toy_sum"]


@pytest.fixture
def cell():
    """Return `cell(source, namespace)`, which runs source as a notebook's cell, and returns the
    namespace."""

    def run(source, namespace=None):
        namespace = {"__name__": "__main__"} if namespace is None else namespace
        source = textwrap.dedent(source).lstrip("\n")
        filename = f"/tmp/cells/{next(_cells)}.py"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), namespace)
        return namespace

    return run
