"""A weaker sandbox, for kernels that refuse bubblewrap: the code runs as another user.

Only root can start this sandbox. It keeps the code away from the course's files and from the
grader, limits the use of resources, and leaves nothing behind. The protection is incomplete:
docs/teaching.md lists attacks that succeed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddpkit.files import CHECKOUT, PACKAGE
from ddpkit.grade.sandbox import filter
from ddpkit.grade.sandbox.base import Limits, Usage, command_line, confine, environment, open_to_all
from ddpkit.grade.sandbox.cgroup import ControlGroup
from ddpkit.grade.sandbox.meter import UseMeter
from ddpkit.grade.sandbox.users import free_user, open_folders, owned_by, owned_in, processes_of

FIRST_READABLE = """
import os, sys, torch
seen = [path for path in sys.argv[1:] if os.access(path, os.R_OK) or os.access(path, os.X_OK)]
print(seen[0] if seen else "")
"""  # prints the first path that the running user can read or enter
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38


def trouble(private: Sequence[Path] = ()) -> str:
    """Return the reason why code cannot run as another user, or could read private files.

    The reason is "" if neither is true.
    """
    if os.geteuid() != 0:
        return "only root can run code as another user"
    course = [PACKAGE / "answers", PACKAGE / "checks"]
    course += [CHECKOUT / name for name in ("solutions", "tests", ".git")]
    looking = [
        sys.executable,
        "-c",
        FIRST_READABLE,
        *(str(each.absolute()) for each in (*course, *private)),
    ]
    try:
        done = subprocess.run(
            looking,
            preexec_fn=functools.partial(_become, free_user()),
            env={},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"another user cannot run {sys.executable}: {error}"
    if done.returncode:
        return f"{sys.executable} fails for another user: {done.stderr.strip()[-200:]}"
    seen = done.stdout.strip()
    return f"the code could read {seen}; `chmod go= {seen}` prevents this" if seen else ""


class OtherUser:
    """A sandbox for one run: a separate user of the machine.

    The arguments are those of `Bwrap`.
    """

    def __init__(self, course: Path, job: Path, limits: Limits) -> None:
        self.limits, self.user = limits, free_user()
        self.process: subprocess.Popen[bytes] | None = None
        self.meter = UseMeter(limits)
        self.group = ControlGroup(limits)
        self.theirs: list[Path] = []
        # folders, besides the sandbox's own, in which a student's code can make files
        self.open = open_folders()
        self.folder = job.parent / "box"  # only the user's group may enter
        for outer in (job.parent, job.parent.parent):
            outer.chmod(0o711)
        course.parent.chmod(0o700)  # the folder of another lab may hold this lab's answers
        for source, name in ((course.parent, "course"), (job, "job")):
            shutil.copytree(source, self.folder / name)
            open_to_all(self.folder / name)
        for name in ("home", "tmp", "job"):  # Jupyter's kernel makes its sockets in `job`
            (self.folder / name).mkdir(exist_ok=True)
            os.chown(self.folder / name, self.user, self.user)
            self.theirs.append(self.folder / name)
        os.chown(self.folder, 0, self.user)
        self.folder.chmod(0o750)

    def start(self, record: int, log: int) -> None:
        """Run the notebook, as `Bwrap.start` does."""
        course, job, home, tmp = (self.folder / n for n in ("course", "job", "home", "tmp"))
        self.process = subprocess.Popen(
            command_line(job, self.limits),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=job,
            env=environment(record, course, job, home, tmp),
            pass_fds=[record],
            start_new_session=True,
            preexec_fn=self._before_it_begins,
        )

    def _before_it_begins(self) -> None:
        self.group.enter()
        _become(self.user, self.limits)

    def usage(self) -> Usage:
        """Return the resources that the user's processes use or have used, and the files' bytes."""
        used = self.group.added(self.meter.look(functools.partial(processes_of, self.user)))
        used.disk = sum(map(_size, (*self.theirs, *owned_in(self.open, self.user))))
        return used

    def end(self) -> None:
        """End all processes of the user, and remove all files of the user."""
        while pids := processes_of(self.user):
            # stop all first, so that none forks meanwhile
            for signalled in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signalled)
            time.sleep(0.01)
        if self.process is not None:
            self.process.wait()
        self.group.remove()
        for path in owned_by(self.user):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _become(user: int, limits: Limits | None = None) -> None:
    """Change the user of this process to `user` for good; meant for a `preexec_fn`."""
    if limits is not None:
        confine(limits)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # no way back through sudo and the like
    # a change of user clears this setting, so it comes after the change
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not filter.trouble():
        filter.load()


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    with suppress(OSError):
        total += path.lstat().st_size
    return total
