"""A user chooses the names of processes and the places of files, and can hide none of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ddpkit.grade.sandbox import process, users
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.sandbox.meter import UseMeter, tree
from ddpkit.grade.sandbox.users import free_user, open_folders, owned_by, owned_in, processes_of
from tests.grade.conftest import wait_until
from tests.project.source import PACKAGE

pytestmark = pytest.mark.processes

NAME = "import ctypes\nctypes.CDLL(None).prctl(15, {name!r}.encode(), 0, 0, 0)\n"
WAITS = "print('here', flush=True)\nimport time\nwhile True: time.sleep(100)\n"
# The main thread ends: while a second thread lives, the kernel calls the process a zombie.
HEADLESS = """
import ctypes, threading, time
held = bytearray(b"x" * (300 << 20))
threading.Thread(target=lambda: [print("here", flush=True), time.sleep(1000)]).start()
time.sleep(0.2)
ctypes.CDLL(None).syscall(60, 0)  # exit: of this thread alone
"""
NAMES = [") Z ", "(sleep) Z 1 1 (x", ") X 0", "a) Z 1\n) Z "]


@contextmanager
def running(code: str, **how: int) -> Iterator[int]:
    """Yield the id of a process after a sign of life."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", **how) as child:
        try:
            assert child.stdout
            assert child.stdout.readline() == "here\n"
            yield child.pid
        finally:
            child.kill()


def test_a_name_that_is_no_text_hides_no_process() -> None:
    from ddpkit.cluster import guardian

    with running(NAME.replace("{name!r}.encode()", "b'\\xff\\xfe) Z'") + WAITS) as pid:
        assert process.living(pid) == f"/proc/{pid}"
        assert pid in processes_of(os.geteuid())
        assert pid in guardian.descendants(os.getpid())


@pytest.mark.parametrize("name", NAMES)
def test_no_name_makes_a_process_dead(name: str) -> None:
    with running(NAME.format(name=name) + WAITS) as pid:
        said = Path(f"/proc/{pid}/stat").read_text()
        assert name[:15] in said
        found = process.stat_of(f"/proc/{pid}/stat")
        assert found.state in "RSD"
        assert (found.parent, found.threads) == (os.getpid(), 1)
        assert process.living(pid) == f"/proc/{pid}"
        assert pid in processes_of(os.geteuid())
        assert pid in tree(os.getpid())
        assert UseMeter(Limits()).look(partial(tree, pid)).processes == 1
    assert process.living(pid) is None


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the system call's number is another")
def test_a_process_without_its_main_thread_lives_and_is_counted() -> None:
    """The process's folder in /proc reports no memory, so 300 MB would not be counted."""
    with running(HEADLESS) as pid:
        wait_until(lambda: process.stat_of(f"/proc/{pid}/stat").state == "Z", 30)
        assert process.living(pid) != f"/proc/{pid}"
        assert pid in processes_of(os.geteuid())
        used = UseMeter(Limits()).look(partial(tree, pid))
        assert used.processes == 1
        assert used.threads >= 1
        assert used.memory > 250 << 20


def test_a_zombie_is_dead() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    wait_until(lambda: process.stat_of(f"/proc/{child}/stat").state == "Z", 30)
    assert process.living(child) is None
    assert child not in processes_of(os.geteuid())
    os.waitpid(child, 0)


def test_a_file_is_found_in_a_world_writable_folder_however_deep() -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    user = free_user()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        top = Path(folder)
        top.chmod(0o755)  # users may enter the folder, and not write
        deep = top / "a" / "b" / "c"
        deep.mkdir(parents=True)
        deep.chmod(0o1777)
        theirs = [deep / "left", deep / ".hidden", top / "a" / "folder"]
        for path in theirs[:2]:
            path.write_text("x")
        theirs[2].mkdir()
        (theirs[2] / "inner").write_text("x")
        (deep / "link").symlink_to("/")
        closed = top / "closed"
        closed.mkdir(mode=0o700)
        (closed / "x").write_text("")
        for path in (*theirs, theirs[2] / "inner", deep / "link", closed / "x"):
            os.chown(path, user, user, follow_symlinks=False)
        assert {*owned_by(user)} == {*theirs, deep / "link"}  # users cannot look into `closed`
        assert str(deep) in open_folders()
        assert str(top) not in open_folders()
        assert {*owned_in(open_folders(), user)} == {*theirs[:2], deep / "link"}


def test_the_walk_goes_round_no_link_and_into_no_closed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "SHARED", (tmp_path, tmp_path / "missing"))
    for name in ("open", "closed"):
        (tmp_path / name).mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "open" / "round").symlink_to(tmp_path)
    assert owned_by(31_999) == []


STAT = re.compile(r"/proc/.*/stat\b|\"stat\"|\*/stat\b")
ASKS = {"grade/sandbox/own_account.py"}  # asks only if the file exists
BY_PROCESS = {"grade/sandbox/meter.py"}  # calls `process.stat_of`


def test_whoever_reads_stat_finds_its_fields_after_the_last_bracket() -> None:
    """The name of a process may be any bytes: a strict reader would skip the process."""
    readers = {
        path.relative_to(PACKAGE).as_posix(): text
        for path in PACKAGE.rglob("*.py")
        if STAT.search(text := path.read_text("utf-8"))
    }
    assert {"grade/sandbox/process.py", "cluster/guardian.py", *BY_PROCESS, *ASKS} <= {*readers}
    for name in {*readers} - BY_PROCESS - ASKS:
        assert "rpartition(" in readers[name], name
        for line in readers[name].splitlines():
            assert not (STAT.search(line) and "read_text(" in line and "replace" not in line), name
