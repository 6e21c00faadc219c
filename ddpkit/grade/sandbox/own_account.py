"""No sandbox: a student's notebook in the student's account, for `ddpkit check --as-graded`.

Students need no protection from their own code. The notebook finds the same
environment as in the grader's sandbox: the course's copy of ddpkit, an empty home, and no files
beside the notebook.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

from ddpkit.grade.sandbox.base import Limits, Usage, command_line, environment
from ddpkit.grade.sandbox.meter import UseMeter, tree


class OwnAccount:
    """One run in the student's account, without a sandbox.

    The arguments are those of `Bwrap`.
    """

    def __init__(self, course: Path, job: Path, limits: Limits) -> None:
        self.course, self.job, self.limits = course, job, limits
        self.folder = job.parent / "own"
        self.process: subprocess.Popen[bytes] | None = None
        self.meter = UseMeter(limits)

    def start(self, record: int, log: int) -> None:
        """Run the notebook, as `Bwrap.start` does."""
        home, tmp = self.folder / "home", self.folder / "tmp"
        for folder in (home, tmp):
            folder.mkdir(parents=True, exist_ok=True)
        path = os.environ.get("PATH", "")
        self.process = subprocess.Popen(
            command_line(self.job, self.limits),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.job,
            env={
                **environment(
                    *(record, self.course.parent, self.job, home, tmp), self.limits.case_s
                ),
                "PATH": path,
            },
            pass_fds=[record],
            start_new_session=True,
        )

    def usage(self) -> Usage:
        """Return the resources that the run's processes use and have used; zeros without /proc."""
        assert self.process is not None
        if not Path("/proc/self/stat").exists():
            return Usage()
        return self.meter.look(partial(tree, self.process.pid))

    def end(self) -> None:
        """End all descendants of the run's process, and all processes of its session."""
        if self.process is None:
            return
        pids = tree(self.process.pid) if Path("/proc/self/stat").exists() else set()
        for pid in pids - {self.process.pid}:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
