"""nbval runs the solved lessons as one walk: in their order, with one folder of kept answers, so
that each takes along the student's own answers to the labs before it.

All of them are in one worker of pytest-xdist (`order.scope_of`). That the kit's answers would do as
well is known from where nothing is kept: in the grader (tests/grade/test_course.py) and under
torchrun (tests/cluster/test_torchrun.py).

A right program must not be accused, so no cell may have the words of `ddpkit.cluster.afterwards`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from tests.order import LESSONS, scope_of

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

CARRIED = re.compile(r"^(\w+): the kit's version; ", re.MULTILINE)
ACCUSED = re.compile(
    "The ranks seem to have made collectives in different orders|The code changed the tensor of "
    "|Nobody waited for |A real job would have ended here|equal on all ranks, but "
)
_walked: set[str] = set()  # labs whose solved lesson this process has begun


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Make `--dist loadfile` mean the shares of tests/order.py."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hold it against a cell of a lesson if it did not take along what an earlier one has kept."""
    report = yield
    if scope_of(item.nodeid) == LESSONS and call.when == "call":
        _walked.add(item.path.stem[:2])
        texts = [output.get("text", "") for output in getattr(item, "test_outputs", None) or []]
        if report.passed and (lost := not_own("".join(texts), _walked)):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} has not carried its own {', '.join(lost)}"
        if report.passed and (said := accusation(" ".join(texts))):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} is accused: {said}"
    return report


def not_own(said: str, walked: set[str]) -> list[str]:
    """Answers of which a cell said that it takes the kit's, though their labs were walked."""
    from ddpkit.exercises import find

    return [name for name in CARRIED.findall(said) if find(name).lab in walked]


def accusation(said: str) -> str:
    """Return a cell's words from its first accusation on; "" without one."""
    text = " ".join(said.split())
    found = ACCUSED.search(text)
    return text[found.start() :][:300] if found else ""
