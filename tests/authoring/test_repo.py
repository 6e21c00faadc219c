"""The lessons of this repository and their products agree: `ddpkit release --check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpkit import authoring as release

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "solutions").glob("*.py"))


def test_the_first_lessons_are_there() -> None:
    assert {"00_ranks", "01_sgd"} <= {path.stem for path in LESSONS}


def test_everything_is_released_and_fresh() -> None:
    assert release.check(ROOT) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_answers_import_by_name(path: Path) -> None:
    from ddpkit import answers

    lesson = release.parse(path)
    for name in lesson.exercises:
        assert answers.get(name).__name__ == name
