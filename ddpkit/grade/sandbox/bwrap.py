"""The full sandbox, made by bubblewrap, without the answers of the course.

The sandbox has the running Python, the libraries, and a copy of ddpkit without the files that would
reveal answers of this lab or a later lab. All other folders are small and in memory. The sandbox
has no network except its own loopback, and its processes end when the sandbox ends.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ddpkit.files import CHECKOUT, PACKAGE
from ddpkit.grade.sandbox import filter
from ddpkit.grade.sandbox.base import Limits, Usage, command_line, confine, environment, open_to_all
from ddpkit.grade.sandbox.cgroup import ControlGroup
from ddpkit.grade.sandbox.meter import UseMeter, tree
from ddpkit.grade.sandbox.users import free_user

JOB = Path("/job")  # the folder of the questions and the notebook, as seen inside
COURSE = Path("/course")
# folders for the student's files, besides the job's folder
IN_MEMORY = ("/tmp", "/home", "/dev/shm")
NAME = 1 << 10  # bytes of kernel memory that a file takes: about 0.7 kB and its name
ISOLATION = [
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--cap-drop",
    "ALL",
]
# a grader that is not root needs a user namespace
AS_ONESELF = ["--unshare-user", "--disable-userns"]
# root keeps only these two capabilities
AS_ANOTHER = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
FIRST_SEEN = """
import os, sys, pytest
sys.exit(0 if os.access(sys.argv[1], os.R_OK) else "the libraries cannot be read")
"""


@functools.cache
def trouble() -> str:
    """Return the reason why bubblewrap cannot make a sandbox on this machine; "" if it can."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed: apt-get install bubblewrap"
    return "" if not why_root_stays() else _refused([*AS_ONESELF], ["true"])


@functools.cache
def why_root_stays() -> str:
    """Return why a student's code would run under the grader's user id; "" if it would not.

    Inside the sandbox, no user id has any capability. But some switches of the kernel and root's
    files belong to root's id, and a separate user id has limits of its own.
    """
    if os.geteuid() != 0:
        return "the grader is not root, and has no other user's id to give"
    if why := filter.trouble() or ("" if shutil.which("setpriv") else "setpriv is not installed"):
        return why
    library = Path(sysconfig.get_paths()["purelib"], "torch", "__init__.py")
    look = [*become(free_user()), sys.executable, "-c", FIRST_SEEN, str(library)]
    return _refused(AS_ANOTHER, look)


def lacks() -> str:
    """Return the protection, in words, that a sandbox on this machine does not have.

    The result is "" if no protection is missing. docs/teaching.md explains the consequences.
    """
    if why := filter.trouble():
        return why
    return f"root's user id: {why_root_stays()}" if os.geteuid() == 0 and why_root_stays() else ""


def _refused(rights: Sequence[str], command: Sequence[str]) -> str:
    """Return the reason why a command cannot run in a sandbox; "" if the command runs."""
    with tempfile.TemporaryDirectory() as folder, _filter() as (arguments, descriptors):
        (course := Path(folder, "course", "ddpkit")).mkdir(parents=True)
        (job := Path(folder, "job")).mkdir()
        arguments = [*rights, *mounts(course, job, 1 << 20), *arguments, "--", *command]
        try:
            tried = subprocess.run(
                ["bwrap", *ISOLATION, *arguments],
                capture_output=True,
                text=True,
                timeout=60,
                pass_fds=descriptors,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bwrap does not work here: {error}"
        # the last line of a traceback names the error
        said = tried.stderr.strip().splitlines()[-1:]
        return f"bwrap is refused here: {''.join(said)[:200]}" if tried.returncode else ""


def become(user: int) -> list[str]:
    """Return the start of a command line, which runs the rest of the command as the user `user`."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]


@contextmanager
def _filter() -> Iterator[tuple[list[str], list[int]]]:
    """Yield bwrap's arguments for the filter of system calls, and the descriptors to inherit."""
    if filter.trouble():
        yield [], []
        return
    with tempfile.TemporaryFile() as file:
        file.write(filter.program())
        file.seek(0)
        yield ["--seccomp", str(file.fileno())], [file.fileno()]


class Bwrap:
    """A sandbox made by bubblewrap, for one run.

    course  the copy of ddpkit that is visible in the sandbox, made by `copy_course`
    job     the folder of the notebook and the questions
    """

    def __init__(self, course: Path, job: Path, limits: Limits) -> None:
        self.course, self.job, self.limits = course, job, limits
        self.process: subprocess.Popen[bytes] | None = None
        self.meter = UseMeter(limits)
        self.group = ControlGroup(limits)
        self.inside = 0  # id of a process that sees the sandbox's folders; 0: not yet known

    def start(self, record: int, log: int) -> None:
        """Start the notebook; the plugin writes to the descriptor `record`, pytest to `log`."""
        open_to_all(self.job)
        arguments = [*mounts(self.course, self.job, self.limits.disk), "--chdir", str(JOB)]
        home, tmp = Path("/home"), Path("/tmp")
        found = environment(record, COURSE, JOB, home, tmp, self.limits.case_s)
        for name, value in found.items():
            arguments += ["--setenv", name, value]
        command = command_line(JOB, self.limits)
        rights = AS_ONESELF
        if not why_root_stays():
            rights, command = AS_ANOTHER, [*become(free_user()), *command]
        program = shutil.which("bwrap") or "bwrap"
        with _filter() as (filtering, descriptors):
            self.process = subprocess.Popen(
                [program, *ISOLATION, *rights, *arguments, *filtering, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},  # bwrap is a process inside: a student's code can read its environment
                pass_fds=[record, *descriptors],
                preexec_fn=self._before_it_begins,
            )

    def _before_it_begins(self) -> None:
        self.group.enter()
        confine(self.limits)

    def usage(self) -> Usage:
        """Return the resources that the processes in the sandbox use now, and have used so far."""
        assert self.process is not None
        used = self.meter.look(self._processes)
        used.memory += memory_of_names(self.inside, self.limits.disk) if self.inside else 0
        return self.group.added(used)

    def _processes(self) -> set[int]:
        assert self.process is not None
        found = tree(self.process.pid)
        self.inside = min(found - {self.process.pid}, default=0)
        return found

    def end(self) -> None:
        """End all processes in the sandbox: the kernel kills them when the first process ends."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.group.remove()


def memory_of_names(pid: int, disk: int) -> int:
    """Return the bytes of kernel memory for the files in the sandbox's memory folders.

    Even empty files take kernel memory, which their sizes do not show: millions of empty files
    would take gigabytes. If the size of a folder is not `disk`, the folder belongs to the machine,
    because the process has not yet entered the sandbox.
    """
    total = 0
    for folder in (*IN_MEMORY, str(JOB)):
        with suppress(OSError):
            found = os.statvfs(f"/proc/{pid}/root{folder}")
            if found.f_blocks * found.f_frsize == disk:
                total += (found.f_files - found.f_ffree) * NAME
    return total


def mounts(course: Path, job: Path, disk: int) -> list[str]:
    """Return bwrap's arguments for the files and folders that are visible in the sandbox.

    disk the size of a folder in memory, in bytes
    """
    arguments = ["--proc", "/proc", "--dev", "/dev"]
    # bwrap itself protects /proc/sys only if that folder, not just its files, is writable.
    arguments += ["--ro-bind", "/proc/sys", "/proc/sys", "--remount-ro", "/proc"]
    for folder in IN_MEMORY:  # these mounts come first, because Python itself may be below /home
        arguments += ["--perms", "0777", "--size", str(disk), "--tmpfs", folder]
    seen = layers(set(_readable()), set(_telling()))
    for path, is_covered in seen:
        # without --dir, bwrap makes outer folders that only root can read
        for outer in reversed(path.parents[:-1]):
            around = [covered for each, covered in seen if each in (outer, *outer.parents)]
            if around[-1:] != [False]:
                arguments += ["--perms", "0755", "--dir", str(outer)]
        arguments += ["--tmpfs", str(path)] if is_covered else ["--ro-bind", str(path), str(path)]
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            arguments += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    arguments += ["--ro-bind", str(course.parent), str(COURSE)]
    arguments += ["--perms", "0777", "--size", str(disk), "--tmpfs", str(JOB)]
    for path in sorted(job.iterdir()):
        arguments += ["--ro-bind", str(path), str(JOB / path.name)]
    for final in (*(str(path) for path, is_covered in seen if is_covered), "/dev", "/"):
        arguments += ["--remount-ro", final]
    return arguments


def layers(readable: set[Path], telling: set[Path]) -> list[tuple[Path, bool]]:
    """Return the folders to make visible (False) or to hide (True), outer folders first.

    A folder is hidden if it reveals answers. So a checkout below /usr is hidden, and a virtual
    environment in this checkout is visible again.
    """
    covered = {each for each in telling if readable & set(each.parents)}
    return sorted([(path, False) for path in readable] + [(path, True) for path in covered])


def _telling() -> Iterator[Path]:
    """Yield the folders that reveal answers: the checkout, and installed copies of ddpkit."""
    if (CHECKOUT / "solutions").is_dir():
        yield CHECKOUT
    yield PACKAGE
    for prefix in {Path("/usr/local"), *_readable()}:
        for found in prefix.glob("lib*/python*/*-packages/ddpkit"):
            yield found.resolve()


def _readable() -> Iterator[Path]:
    """Yield the paths that Python needs to run: its own files and the system's libraries."""
    yield Path("/usr")
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_dir() and not Path("/", name).is_symlink():
            yield Path("/", name)
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl", "localtime"):
        if Path("/etc", name).exists():
            yield Path("/etc", name)
    for prefix in {sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"]}:
        yield Path(prefix)
