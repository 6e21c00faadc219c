"""The kernel's own limits on a sandbox: a control group, on machines that allow one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpkit.grade.sandbox import cgroup
from ddpkit.grade.sandbox.base import Limits, Usage
from ddpkit.grade.sandbox.cgroup import ControlGroup

FILLS_MEMORY = """
held = bytearray(300 << 20)
held[::4096] = b"x" * len(held[::4096])
"""
FORKS = """
import os, signal, time
for number in range(200):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        os.write(2, f"{number} children".encode())
        os.killpg(0, signal.SIGKILL)
"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    """Yield a group with limits of 100 MB and 100 tasks."""
    monkeypatch.setattr(cgroup, "SPARE_MEMORY", 0)
    group = ControlGroup(Limits(memory=100 << 20, disk=0, threads=0))
    if not group.folders:
        pytest.skip("cgroup: no control group can be made by this user on this machine")
    folders = group.folders
    yield group
    group.remove()
    assert not any(map(Path.exists, folders))


def run(program: str, group: ControlGroup) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, preexec_fn=group.enter, capture_output=True, text=True, start_new_session=True
    )


@pytest.mark.processes
def test_m08_the_kernel_ends_who_takes_too_much_memory(small: ControlGroup) -> None:
    assert run("pass", small).returncode == 0
    assert small.added(Usage(memory=1)).memory == 1
    assert run(FILLS_MEMORY, small).returncode == -9
    # the peak counts, however little memory is still in use
    assert small.added(Usage(memory=1)).memory >= 100 << 20


@pytest.mark.processes
def test_m09_the_kernel_starts_no_more_than_so_many(small: ControlGroup) -> None:
    said = run(FORKS, small).stderr
    assert said.strip() == "99 children"


def tree(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def limits_of(root: Path, own: str) -> dict[str, dict[str, str]]:
    """Return folder above -> the values that were written into the groups made there."""
    (root / "own").write_text(own)
    group = ControlGroup(Limits(memory=1 << 30, disk=0, threads=7), root, root / "own")
    return {
        str(folder.parent.relative_to(root)): {
            path.name: path.read_text() for path in folder.iterdir()
        }
        for folder in group.folders
    }


@pytest.fixture
def files_of_the_kernel(monkeypatch: pytest.MonkeyPatch):
    """Create in each new folder the files that the kernel would create."""
    made = cgroup.mkdtemp

    def with_files(prefix: str, dir: Path) -> str:
        folder = made(prefix=prefix, dir=dir)
        of_version_1 = {"pod": cgroup.FILES[1][:1], "pids": ("pids.max",)}
        for name in of_version_1.get(dir.name, cgroup.FILES[2][:3]):
            Path(folder, name).write_text("max")
        return folder

    monkeypatch.setattr(cgroup, "mkdtemp", with_files)


@pytest.mark.usefixtures("files_of_the_kernel")
def test_version_1_limits_in_the_groups_of_two_controllers(tmp_path: Path) -> None:
    root = tree(tmp_path, {"memory/pod/x": "", "pids/x": ""})
    # a container often sees the top of a hierarchy, while its file names a path on the host
    own = "9:pids:/seen/by/the/host\n4:memory:/pod\n2:cpu,cpuacct:/\n0::/\n"
    memory = str((1 << 30) + cgroup.SPARE_MEMORY)
    assert limits_of(root, own) == {
        "memory/pod": {"memory.limit_in_bytes": memory},
        "pids": {"pids.max": str(7 + cgroup.SPARE_THREADS)},
    }


@pytest.mark.usefixtures("files_of_the_kernel")
def test_version_2_limits_below_the_nearest_group_that_gives_them_away(tmp_path: Path) -> None:
    control = "cgroup.subtree_control"
    root = tree(
        tmp_path,
        {f"user/app/mine/{control}": "", f"user/app/{control}": "pids", control: "memory"}
        | {f"user/{control}": "cpu memory pids"},
    )
    memory = str((1 << 30) + cgroup.SPARE_MEMORY)
    assert limits_of(root, "0::/user/app/mine\n") == {
        "user": {
            "memory.max": memory,
            "memory.swap.max": "0",
            "pids.max": str(7 + cgroup.SPARE_THREADS),
        }
    }


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/\n", {}),
        ("0::/\n", {"cgroup.subtree_control": "cpu"}),
        ("", {}),
        ("no lines of the kernel's", {}),
        ("4:memory:/\n", {}),
    ],
)
def test_where_there_is_none_nothing_is_limited_and_nothing_raises(
    tmp_path: Path, own: str, files: dict[str, str]
) -> None:
    (tmp_path / "own").write_text(own)
    group = ControlGroup(Limits(), tree(tmp_path, files), tmp_path / "own")
    assert group.folders == []
    group.enter()
    assert not group.has_killed
    group.remove()
    assert ControlGroup(Limits(), tmp_path, tmp_path / "not there").folders == []


@pytest.mark.processes
def test_what_a_killed_grader_left_is_taken_away(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (tmp_path / f"ddpkit-{pid}-x").mkdir()
    (tmp_path / "of-others").mkdir()
    cgroup._sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"ddpkit-{os.getpid()}-x", "of-others"}
