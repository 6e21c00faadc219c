"""The order of the test files, longest first, so that all workers end at about the same time.

A share is a set of tests that stay together in one worker.
"""

from __future__ import annotations

import re

import pytest

LESSONS = "solutions"  # all solved lessons, which run one after the other: tests/walk.py
CLASSES = "tests/grade/test_attacks.py", "tests/grade/test_course.py"  # each uses two sandboxes
OF_A_LAB = re.compile(r"tests/labs/test_wrong_and_right\.py::\w+\[\d\d")  # "…::test_a_right…[03"
LONGEST = (  # each takes a minute or more, with three workers on two cores
    LESSONS,
    *CLASSES,
    "tests/notebook/test_lab.py",
    "tests/docs/test_commands.py",
    "tests/benchmarks/test_benchmarks.py",
    "tests/grade/test_other_user.py",
    "tests/cluster/test_hosts.py",
    "tests/cluster/test_torchrun.py",
    "tests/project/test_wheel.py",
    "tests/docs/test_site.py",
)


def scope_of(nodeid: str) -> str:
    """Return the name of a worker's share: a file, all lessons, two classes, or a lab's answers.

    Two classes graded at once during other tests would need more sandboxes than two cores can run.
    """
    path = nodeid.partition("::")[0]
    if path.startswith(f"{LESSONS}/"):
        return LESSONS
    if of_a_lab := OF_A_LAB.match(nodeid):
        return of_a_lab[0]
    return CLASSES[0] if path in CLASSES else path


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests in place: files of LONGEST come first, and the other files keep their order."""
    place = {path: number for number, path in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(scope_of(item.nodeid), len(place)))
