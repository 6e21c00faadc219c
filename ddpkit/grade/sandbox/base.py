"""The parts of all kinds of sandbox: limits, the copy of the course, the command line."""

from __future__ import annotations

import compileall
import ctypes
import os
import platform
import resource
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Protocol

from ddpkit.cluster.local.launch import HUGE_PAGES
from ddpkit.exercises.exercise import exercises
from ddpkit.files import PACKAGE

BARE = "bare"  # folder of a ddpkit that has only the plugin, beside the course's copy
SPARE_THREADS = 100  # threads by which the kernel's limit is above the meter's limit
NICE = 5  # niceness of a sandbox's processes, if the grader is not root
KEYCTL = {"x86_64": 250, "aarch64": 219}  # number of the system call keyctl
JOIN_SESSION_KEYRING = 1


@dataclass(frozen=True)
class Limits:
    """The limits on time, memory, processes and files of one submission."""

    cell_s: float = 60.0  # seconds for a cell or a case; waits for a busy core do not count
    case_s: float = 0.0  # seconds until a case ends by itself; 0: never
    start_s: float = 120.0  # seconds until Jupyter has started and torch is imported
    whole_s: float = 1800.0  # seconds for all runs of a submission
    # bytes: address space of each process, and memory of all processes together
    memory: int = 6 << 30
    disk: int = 256 << 20  # bytes of each folder in memory
    processes: int = 150  # processes at a time
    threads: int = 600  # threads of all processes together
    files: int = 4000  # open files and sockets of all processes together
    terminals: int = 64  # open terminals of all processes together; a machine has some thousands
    line: int = 4 << 20  # bytes of one claim that leaves the sandbox
    output: int = 64 << 20  # bytes of all output that leaves the sandbox

    @classmethod
    def of_cells(cls, seconds: float) -> Limits:
        """Return limits with `seconds` for a cell or a case, and enough time for all cells."""
        return cls(cell_s=seconds, whole_s=max(cls.whole_s, 30 * seconds))


@dataclass
class Usage:
    """The resources that a sandbox's processes use now, and those used so far."""

    processes: int = 0
    memory: int = 0  # bytes
    computed_s: float = 0.0
    waited_s: float = 0.0  # seconds in which runnable processes waited for a core
    disk: int = 0  # bytes of files, if no folder in memory limits them
    threads: int = 0
    files: int = 0  # open files and sockets
    terminals: int = 0  # open terminals; counted only if more files are open than Limits.terminals


class Sandbox(Protocol):
    """A sandbox for one run: a `Bwrap`, an `OtherUser` or an `OwnAccount`."""

    def start(self, record: int, log: int) -> None:
        """Start the notebook; the plugin writes to the descriptor `record`, pytest to `log`."""

    def usage(self) -> Usage:
        """Return the resources that are in use now, and the resources used so far."""

    def end(self) -> None:
        """End all processes of the sandbox."""


def copy_course(folder: Path, lab: str, opened: str = "") -> Path:
    """Copy ddpkit into `folder`, for the sandbox of lab NN; return the path of the copied package.

    opened the first lab that is still open ("03"); "" stands for lab NN

    The copy does not contain the answers of open labs, the answers and checks of lab NN and of
    later labs, or the parts of the grader that run outside.
    """
    # the lowest number of a lab that is left out
    first = {"answers": min(lab, opened or lab), "checks": lab}
    target = folder / f"course{lab}" / "ddpkit"

    def ignored(where: str, names: list[str]) -> set[str]:
        inside = Path(where).relative_to(PACKAGE).parts
        tell = {name for name in names if len(inside) == 1 and late(inside[0], name)}
        grader = {*names} - {"__init__.py", "inside"} if inside == ("grade",) else set()
        return tell | grader | {name for name in names if name == "__pycache__"}

    def late(part: str, name: str) -> bool:
        number = name.removeprefix("lab")[:2]
        return part in first and number.isdigit() and number >= first[part]

    shutil.copytree(PACKAGE, target, ignore=ignored, dirs_exist_ok=True)
    known = {name: one.lab for name, one in exercises().items() if one.lab < first["answers"]}
    index = "LABS = " + repr({name: f"lab{number}" for name, number in known.items()})
    (target / "answers" / "__init__.py").write_text(
        f"from importlib import import_module\n\n{index}\n\n\ndef get(name):\n"
        '    return getattr(import_module(f"{__name__}.{LABS[name]}"), name)\n'
    )
    _compile(target)
    _leave_bare(target)
    open_to_all(target.parent)
    return target


def _leave_bare(course: Path) -> None:
    """Make a smaller copy of ddpkit beside `course`, with only the modules of `grade.inside`.

    pytest's process needs only the plugin from ddpkit; an import of the whole package would take
    half of the process's time.
    """
    bare = course.parent / BARE / "ddpkit"
    inside = course / "grade" / "inside"
    shutil.copytree(inside, bare / "grade" / "inside", dirs_exist_ok=True)
    for folder in (bare, bare / "grade"):
        (folder / "__init__.py").touch()


def open_to_all(folder: Path) -> None:
    """Make a folder of the grader readable for every user.

    The permissions of the outer folders stay as they are.
    """
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _compile(course: Path) -> None:
    """Put bytecode beside the modules of a copy.

    Three processes of each sandbox import the modules, and none of them may write bytecode.
    Existing bytecode of ddpkit is copied, but never the bytecode of a module that was left out.
    """
    for path in course.rglob("*.py"):
        ready = Path(cache_from_source(str(PACKAGE / path.relative_to(course))))
        if ready.exists():
            target = Path(cache_from_source(str(path)))
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(ready, target)
    # compiles the new and the changed modules
    compileall.compile_dir(course, quiet=2)


def command_line(job: Path, limits: Limits) -> list[str]:
    """Return the command that runs the notebook in folder `job`."""
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--noconftest", "-q", "-s"]
    command += ["-p", "no:cacheprovider", "-p", "ddpkit.grade.inside.plugin", "-p", "nbval.plugin"]
    # pytest looks into no outer folder
    command += ["--rootdir", str(job), "--confcutdir", str(job)]
    command += ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "100000"]
    command += ["--nbval-kernel-startup-timeout", str(limits.start_s)]
    return [*command, str(job / "graded.ipynb")]


def environment(
    record: int, course: Path, job: Path, home: Path, tmp: Path, case_s: float = 0.0
) -> dict[str, str]:
    """Return the environment variables of a sandbox.

    The pytest plugin writes to the file descriptor `record`.
    """
    return {
        **({"DDPKIT_CASE_S": f"{case_s:g}"} if case_s else {}),
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "LANG": "C.UTF-8",
        # pytest imports from the first folder; the plugin removes this folder for Jupyter's kernel
        "PYTHONPATH": f"{course / BARE}{os.pathsep}{course}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # an installed plugin may change the order of cells
        "JUPYTER_RUNTIME_DIR": str(tmp / "j"),
        "IPYTHONDIR": str(home / "i"),
        "MPLBACKEND": "agg",
        "DDPKIT_PROGRESS": str(home / "progress"),
        "DDPKIT_QUESTIONS": str(job / "questions"),
        "DDPKIT_RECORD": str(record),
        "OMP_NUM_THREADS": "1",
        **HUGE_PAGES,
    }


def confine(limits: Limits) -> None:
    """Limit this process and all its children, and replace the grader's keyring by an empty one.

    This function is meant for a `preexec_fn`.
    """
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk, limits.disk))
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    # RLIMIT_NPROC counts all processes of a user id; under root, the sandbox has an id of its own
    if os.geteuid() == 0:
        most = limits.threads + SPARE_THREADS
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    else:  # leave the grader time beside a thousand processes; root raises its own priority instead
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, the kernel kills this process, not the grader
    if number := KEYCTL.get(platform.machine()):
        ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)  # a new, empty keyring
