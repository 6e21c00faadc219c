"""The sandbox proper: bubblewrap, with nothing of the course's answers inside.

The sandbox has the Python that runs this, the libraries, a copy of ddpkit without all that would
give away answers of this lab and later ones, and small folders in memory for everything else. It
has no network but its own loopback, and its processes end with it.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ddpkit.files import CHECKOUT, PACKAGE
from ddpkit.grade.sandbox import Limits, Usage, command_line, confine, environment, tree, usage

JOB = Path("/job")  # the folder of questions and notebook, inside
COURSE = Path("/course")
ISOLATION = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--cap-drop",
    "ALL",
    "--disable-userns",
]


@functools.cache
def trouble() -> str:
    """The reason why there is no such sandbox on this machine; "" if there is one."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bwrap is not installed: apt-get install bubblewrap"
    command = [bwrap, *ISOLATION, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not work here: {error}"
    return f"bwrap is refused here: {tried.stderr.strip()[:200]}" if tried.returncode else ""


class Bwrap:
    """One sandbox, for one run.

    course  the copy of ddpkit that goes in, made by `copy_course`
    job     the folder of the notebook and the questions
    """

    def __init__(self, course: Path, job: Path, limits: Limits) -> None:
        self.course, self.job, self.limits = course, job, limits
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, record: int, log: int) -> None:
        """Run the notebook; the plugin writes to descriptor `record`, pytest to `log`."""
        arguments = [*mounts(self.course, self.job, self.limits.disk), "--chdir", str(JOB)]
        for name, value in environment(record, COURSE, JOB, Path("/home"), Path("/tmp")).items():
            arguments += ["--setenv", name, value]
        self.process = subprocess.Popen(
            ["bwrap", *ISOLATION, *arguments, "--", *command_line(JOB, self.limits)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[record],
            preexec_fn=functools.partial(confine, self.limits),
        )

    def usage(self) -> Usage:
        """What the processes inside use now, and have used."""
        assert self.process is not None
        return usage(tree(self.process.pid))

    def end(self) -> None:
        """End all that is in it: the kernel does so with its first process."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


def mounts(course: Path, job: Path, disk: int) -> list[str]:
    """Arguments of bwrap: what is seen inside, and where; `disk`: bytes of a folder in memory."""
    arguments = ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", "/home", "/dev/shm"):  # first: Python may itself live below /home
        arguments += ["--size", str(disk), "--tmpfs", folder]
    seen = layers(set(_readable()), set(_telling()))
    for path, is_covered in seen:
        arguments += ["--tmpfs", str(path)] if is_covered else ["--ro-bind", str(path), str(path)]
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            arguments += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    arguments += ["--ro-bind", str(course.parent), str(COURSE)]
    arguments += ["--size", str(disk), "--tmpfs", str(JOB)]
    for path in sorted(job.iterdir()):
        arguments += ["--ro-bind", str(path), str(JOB / path.name)]
    for final in (*(str(path) for path, is_covered in seen if is_covered), "/dev", "/"):
        arguments += ["--remount-ro", final]
    return arguments


def layers(readable: set[Path], telling: set[Path]) -> list[tuple[Path, bool]]:
    """Folders to bind (False), and to cover because they tell answers (True): outer ones first.

    So a checkout below /usr is covered, and a virtual environment in that checkout is there again.
    """
    covered = {each for each in telling if readable & set(each.parents)}
    return sorted([(path, False) for path in readable] + [(path, True) for path in covered])


def _telling() -> Iterator[Path]:
    """Folders that tell answers: the checkout, and ddpkit where it is installed."""
    if (CHECKOUT / "solutions").is_dir():
        yield CHECKOUT
    yield PACKAGE
    for prefix in {Path("/usr/local"), *_readable()}:
        for found in prefix.glob("lib*/python*/*-packages/ddpkit"):
            yield found.resolve()


def _readable() -> Iterator[Path]:
    """Folders and files without which Python does not run: its own, and the system's libraries."""
    yield Path("/usr")
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_dir() and not Path("/", name).is_symlink():
            yield Path("/", name)
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl", "localtime"):
        if Path("/etc", name).exists():
            yield Path("/etc", name)
    for prefix in {sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"]}:
        yield Path(prefix)
