"""Small gaps: terminals, files without a process, accents on a disk, marks in a path."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata
from functools import partial
from pathlib import Path

import pytest

from ddpkit.grade import attempt
from ddpkit.grade.classroom import _handed_in
from ddpkit.grade.engine import _Watch
from ddpkit.grade.publish.gradebook import gradebook, text_of
from ddpkit.grade.publish.roster import read_roster
from ddpkit.grade.report import report
from ddpkit.grade.sandbox import filter
from ddpkit.grade.sandbox.base import Limits, Usage
from ddpkit.grade.sandbox.meter import UseMeter, tree
from ddpkit.grade.store import Result

MANY = """
import os, pty, sys
held = [pty.openpty() for _ in range({count})]
print("here", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
@pytest.mark.parametrize(("count", "why"), [(70, "terminals"), (3, None)])
def test_terminals_are_counted(count: int, why: str | None) -> None:
    """The machine has some thousands of terminals for all users; a shell in a cell needs a few."""
    command = [sys.executable, "-c", MANY.format(count=count)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as child:
        assert child.stdout
        assert child.stdin
        child.stdout.readline()
        used = UseMeter(Limits()).look(partial(tree, child.pid))
        child.stdin.close()
    assert used.terminals == (count if why else 0)
    watch = _Watch(lambda: used, -1, Limits(), cells=2)
    assert watch._limit() == why
    assert why is None or why in attempt.WORDS


def test_terminals_are_counted_together() -> None:
    watch = _Watch(lambda: Usage(terminals=65), -1, Limits(), cells=2)
    assert watch._limit() == "terminals"


@pytest.mark.processes
@pytest.mark.parametrize("call", ["io_setup", "io_submit", "io_uring_setup"])
def test_no_files_are_read_asynchronously(call: str) -> None:
    """The machine has a fixed number of contexts for all users."""
    if why := filter.trouble():
        pytest.skip(why)
    code = (
        "import ctypes, errno; from ddpkit.grade.sandbox import filter\n"
        f"number = filter._library().seccomp_syscall_resolve_name(b'{call}')\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.prctl(38, 1, 0, 0, 0); filter.load()\n"
        "context = ctypes.c_ulong(0)\n"
        "done = libc.syscall(number, 8, ctypes.byref(context))\n"
        "print(done, errno.errorcode[ctypes.get_errno()])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["-1", "EPERM"]
    assert pty.openpty()  # terminals are counted, not refused, because `!ls` in a cell needs one


@pytest.mark.parametrize("roster_form", ["NFC", "NFD"])
@pytest.mark.parametrize("disk_form", ["NFC", "NFD"])
@pytest.mark.parametrize("column", ["id", "folder", "pattern"])
def test_a_macs_folder_is_its_students(
    roster_form: str, disk_form: str, column: str, tmp_path: Path
) -> None:
    """An accented letter is one character in a roster, and two in a folder of some file systems."""
    name = "Zoë Ångström"
    shown = unicodedata.normalize(roster_form, name)
    rows = {
        "id": f"id,name\n{shown},Z\n",
        "folder": f"id,folder\nz1,{shown}\n",
        "pattern": f"id,folder\nz1,{shown}*\n",
    }
    (tmp_path / "roster.csv").write_text(rows[column])
    folder = unicodedata.normalize(disk_form, name)
    result = Result(f"{folder}/00_ranks.ipynb", "k", "graded", "00", points=4.0, earned=3.0)
    book = gradebook([result], read_roster(tmp_path / "roster.csv"), "best")
    assert not book.strangers
    assert "missing" not in text_of(book)


def test_no_mark_in_a_path_turns_a_report_around() -> None:
    path = "/in/\u202eada\u2066/\x1b[2Jlab.ipynb"
    result = Result("ada", "k", "graded", "00", source=path)
    assert result.source == path  # the grader still finds the file
    text = report([result], "json")
    assert not {"\u202e", "\u2066", "\x1b"} & {*text}
    assert json.loads(text)[0]["source"] == "/in/\\u202eada\\u2066/\\x1b[2Jlab.ipynb"


def test_a_file_removed_meanwhile_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "lab.ipynb"
    path.write_text("")
    os.utime(path, (5, 5))
    assert _handed_in(path) == 5.0
    path.unlink()
    assert _handed_in(path) == 0.0
