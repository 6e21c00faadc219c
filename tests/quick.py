"""`make quick`: the tests that start no process, for use after every edit.

A test is pure unless it has a marker of IMPURE, such as `processes`. If a test of `--quick` without
such a marker starts a process, the test fails, and the failure names process and marker.
`processes("some")` marks a test with both kinds of parameters: the test begins, and is skipped as
soon as it starts a process.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
from collections.abc import Generator
from typing import Any, NoReturn

import pytest

IMPURE = ("processes", "torchrun", "browser", "gpu", "slow")
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec")
AT_ONCE = ("git", "pandoc")  # short calls, for example git's list of files

_test: pytest.Item | None = None  # the running test, if the test must not start a process
_refused: list[str] = []  # the refused calls of the test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that start no process")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        sys.addaudithook(_hear)
        # the only way to start a process without an audit event
        multiprocessing.util.spawnv_passfds = _spawn


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are not pure by their markers."""
    if config.getoption("--quick"):
        out = [item for item in items if not _may_be_pure(item)]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if _may_be_pure(item)]


def _may_be_pure(item: pytest.Item) -> bool:
    marks = [mark for name in IMPURE for mark in item.iter_markers(name)]
    return all(mark.args == ("some",) for mark in marks)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _test
    if item.config.getoption("--quick"):
        _test = item
    try:
        return (yield)
    finally:
        _test = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip or fail a test after a refused call, even if the test has caught the error."""
    report = yield
    if _refused:
        what = f"it starts a process ({_refused[0]})"
        _refused.clear()
        if item.get_closest_marker("processes"):
            report.outcome = "skipped"
            report.longrepr = (__file__, 1, "not in `make quick`: it starts a process")
        else:
            report.outcome = "failed"
            report.longrepr = (
                f"This test is in `make quick`, and {what}. Mark it: @pytest.mark.processes"
            )
    return report


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _test is not None and event in STARTS:
        program = os.path.basename(os.fsdecode(args[0])) if args and args[0] else ""
        if program not in AT_ONCE:
            _refuse(f"{event}: {program}")


def _spawn(path: bytes, *_: Any) -> NoReturn:
    _refuse(f"multiprocessing: {os.path.basename(os.fsdecode(path))}")


def _refuse(what: str) -> NoReturn:
    _refused.append(what)
    pytest.fail(what, pytrace=False)
