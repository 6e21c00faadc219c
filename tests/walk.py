"""nbval runs the solved lessons as one walk: in order, with one folder of kept answers.

So each lesson uses the student's own answers from the labs before it. All lessons run in one worker
of pytest-xdist (`order.scope_of`). Other tests run the lessons with ddpkit's answers in place of
kept ones: in the grader (tests/grade/test_course.py) and under torchrun
(tests/cluster/test_torchrun.py).

A right program must not be accused: no cell may have the words of `ddpkit.cluster.afterwards`.
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
_walked: set[str] = set()  # the labs whose solved lessons have begun in this process


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
    """Fail a cell of a lesson that has not used the answers of an earlier lesson."""
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
    """Return the answers that a cell takes from ddpkit although an earlier lesson has kept them."""
    from ddpkit.exercises import find

    return [name for name in CARRIED.findall(said) if find(name).lab in walked]


def accusation(said: str) -> str:
    """Return the text of a cell from its first accusation on; "" without one."""
    text = " ".join(said.split())
    found = ACCUSED.search(text)
    return text[found.start() :][:300] if found else ""
