"""Where a student's code runs: bubblewrap, with nothing of the course's answers inside.

The sandbox has the Python that runs this, the libraries, a copy of ddpkit without what this lab
and later ones would give away, and small folders in memory for everything else. It has no network
but its own loopback, and its processes end with it.
"""

from __future__ import annotations

import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import ddpkit.errors
from ddpkit.errors import GradeError
from ddpkit.lessons.exercise import exercises

LEVEL = "bwrap"
PACKAGE = Path(ddpkit.errors.__file__).parent
JOB = Path("/job")  # the folder of questions and notebook, inside


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    cell_s: float = 60.0  # of a cell, or a case: seconds that it could have computed in
    start_s: float = 120.0  # of Jupyter, and of importing torch
    memory: int = 6 << 30  # bytes: address space of a process, and memory of all together
    disk: int = 256 << 20  # bytes of each folder in memory
    processes: int = 150  # of all together, threads not counted
    output: int = 64 << 20  # bytes that come out


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
    """Why there can be no sandbox here; "" if there can."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bwrap is not installed: apt-get install bubblewrap"
    command = [bwrap, *ISOLATION, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not work here: {error}"
    return f"bwrap is refused here: {tried.stderr.strip()[:200]}" if tried.returncode else ""


def require() -> None:
    """GradeError: strangers' code cannot be shut in on this machine."""
    if why := trouble():
        raise GradeError(f"Grading runs strangers' code in a sandbox, and {why}.")


def stage(folder: Path, lab: str) -> Path:
    """A copy of ddpkit for the sandbox of lab NN, without what it and later ones give away."""
    target = folder / f"course{lab}" / "ddpkit"

    def left_out(where: str, names: list[str]) -> set[str]:
        inside = Path(where).relative_to(PACKAGE).parts[:1]
        tell = {name for name in names if inside in (("answers",), ("lessons",)) and _late(name)}
        return tell | {name for name in names if name == "__pycache__"}

    def _late(name: str) -> bool:
        number = name.removeprefix("_").removeprefix("lab")[:2]
        return number.isdigit() and number >= lab

    shutil.copytree(PACKAGE, target, ignore=left_out, dirs_exist_ok=True)
    known = {name: one.lab for name, one in exercises().items() if one.lab < lab}
    index = "LABS = " + repr({name: f"lab{number}" for name, number in known.items()})
    (target / "answers" / "__init__.py").write_text(
        f"from importlib import import_module\n\n{index}\n\n\ndef get(name):\n"
        '    return getattr(import_module(f"{__name__}.{LABS[name]}"), name)\n'
    )
    return target


def command(course: Path, job: Path, limits: Limits, record: int) -> list[str]:
    """The command line that runs the notebook of folder `job` inside.

    course  a staged copy of ddpkit
    record  the file descriptor that the plugin writes to
    """
    inside = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--noconftest", "-q", "-s"]
    inside += ["-p", "no:cacheprovider", "-p", "ddpkit.grade.plugin", "--rootdir", str(JOB)]
    inside += ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "100000"]
    inside += ["--nbval-kernel-startup-timeout", str(limits.start_s), str(JOB / "graded.ipynb")]
    arguments = ["bwrap", *ISOLATION, "--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", "/home", "/dev/shm"):  # first: Python may itself live below /home
        arguments += ["--size", str(limits.disk), "--tmpfs", folder]
    for path in _readable():
        arguments += ["--ro-bind", str(path), str(path)]
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            arguments += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    arguments += ["--ro-bind", str(course.parent), "/course", "--size", str(limits.disk)]
    arguments += ["--tmpfs", str(JOB)]
    for path in sorted(job.iterdir()):
        arguments += ["--ro-bind", str(path), str(JOB / path.name)]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(JOB)]
    for name, value in _environment(record).items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--", *inside]


def _environment(record: int) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home",
        "LANG": "C.UTF-8",
        "PYTHONPATH": "/course",
        "PYTHONDONTWRITEBYTECODE": "1",
        "JUPYTER_RUNTIME_DIR": "/tmp/j",
        "IPYTHONDIR": "/home/i",
        "MPLBACKEND": "agg",
        "DDPKIT_PROGRESS": "/home/progress",
        "DDPKIT_QUESTIONS": str(JOB / "questions"),
        "DDPKIT_RECORD": str(record),
        "OMP_NUM_THREADS": "1",
    }


def _readable() -> Iterator[Path]:
    """What has to be there to run Python: its own folders, and the system's libraries."""
    yield Path("/usr")
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_dir() and not Path("/", name).is_symlink():
            yield Path("/", name)
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl", "localtime"):
        if Path("/etc", name).exists():
            yield Path("/etc", name)
    prefixes = {sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"]}
    for prefix in sorted(prefixes):
        if not prefix.startswith("/usr/"):
            yield Path(prefix)


def confine(limits: Limits) -> Callable[[], None]:
    """For `preexec_fn`: the limits of every process inside."""

    def apply() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk, limits.disk))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

    return apply


@dataclass
class Usage:
    """What a tree of processes has used."""

    processes: int = 0
    memory: int = 0  # bytes, shared pages counted once for each process
    computed_s: float = 0.0
    waited_s: float = 0.0  # for a core, while it could have computed


def usage(root: int) -> Usage:
    """Of process `root` and all below it, those that live."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                text = Path("/proc", entry, "stat").read_text(errors="replace")
                parents[int(entry)] = int(text.rpartition(")")[2].split()[1])
    found, total = {root}, Usage()
    fresh = {root}
    while fresh := {pid for pid, parent in parents.items() if parent in fresh} - found:
        found |= fresh
    for pid in found:
        with suppress(OSError, ValueError):
            total.memory += _private_memory(pid)
            total.processes += 1
            for task in os.listdir(f"/proc/{pid}/task"):
                computed, waited, _ = Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()
                total.computed_s += int(computed) / 1e9
                total.waited_s += int(waited) / 1e9
    return total


def _private_memory(pid: int) -> int:
    """Resident bytes that are not shared: forked ranks share torch."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the sandbox: the kernel ends all that is in it with its first process."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
