"""The use of a machine, seen from outside: clocks on a busy machine, memory, disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ddpkit.grade import engine
from ddpkit.grade.engine import PATIENCE, _served, _Watch
from ddpkit.grade.sandbox import bwrap, meter
from ddpkit.grade.sandbox.base import Limits, Usage
from ddpkit.grade.sandbox.bwrap import Bwrap
from ddpkit.grade.sandbox.meter import UseMeter, tree
from tests.grade.conftest import needs_sandbox


def test_who_waits_for_a_core_is_served_less() -> None:
    begun = Usage()
    assert _served(begun, Usage(computed_s=5, waited_s=45), 50) == pytest.approx(0.11, abs=0.02)
    assert _served(begun, Usage(computed_s=50, waited_s=0), 50) == 1.0


def test_m02_who_waits_for_its_own_processes_is_served_as_well_as_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forty busy processes on two cores for 60 s: alone, and beside as many processes of others."""
    monkeypatch.setattr(engine, "cores", lambda: 2)
    assert _served(Usage(), Usage(computed_s=120, waited_s=40 * 60 - 120), 60) == 1.0
    beside = Usage(computed_s=60, waited_s=40 * 60 - 60)
    assert _served(Usage(), beside, 60) == pytest.approx(0.5, abs=0.01)


def test_the_clock_of_a_sleeper_runs() -> None:
    assert _served(Usage(computed_s=3, waited_s=9), Usage(computed_s=3, waited_s=9), 60) == 1.0


def test_usage_of_this_process() -> None:
    now = UseMeter(Limits()).look(partial(tree, os.getpid()))
    assert now.processes >= 1
    assert now.computed_s > 0
    assert 1 << 20 < now.memory < 1 << 36


def watching(now: Usage, seconds: float, cell: int = 0) -> str | None:
    """Return the watch's word on a cell that has run for this time with this use."""
    watch = _Watch(lambda: now, -1, Limits(), cells=2)
    watch.usage = Usage
    for begun in range(cell + 1):
        watch._read_line(json.dumps({"begins": begun}).encode())
    watch.usage = lambda: now
    watch.begun -= seconds
    return watch._limit()


def test_a_machine_under_load_makes_no_timeout() -> None:
    allowed = Limits().cell_s
    starved = Usage(computed_s=1, waited_s=allowed)
    assert watching(Usage(computed_s=5), allowed + 1, cell=1) == "timeout"
    assert watching(starved, allowed + 1, cell=1) is None


def test_m02_a_cell_that_is_never_served_is_run_again_and_no_infra_error() -> None:
    limits = Limits()
    long = Usage(computed_s=1, waited_s=PATIENCE * limits.start_s)
    # nothing of the student runs
    assert watching(long, PATIENCE * limits.start_s + 1) == "infra_error"
    assert watching(long, PATIENCE * limits.cell_s + 1, cell=1) == engine.BUSY


def test_all_of_it_may_take_so_long_and_no_longer() -> None:
    """Each cell is below its own limit."""
    watch = _Watch(Usage, -1, Limits(), cells=2, until=0.0)
    for begun in range(2):
        watch._read_line(json.dumps({"begins": begun}).encode())
    assert watch._limit() == "too long"


@pytest.mark.parametrize(
    ("used", "why"),
    [
        (Usage(memory=(6 << 30) + 1), "memory"),
        (Usage(processes=151), "processes"),
        (Usage(disk=(256 << 20) + 1), "disk"),
        (Usage(threads=601), "threads"),
        (Usage(files=4001), "files"),
        (Usage(150, 6 << 30, 0, 0, 256 << 20, 600, 4000), None),
    ],
    ids=str,
)
def test_limits_hold_for_all_processes_together(used: Usage, why: str | None) -> None:
    assert watching(used, 0) == why


@pytest.mark.processes
def test_the_memory_of_many_processes_counts() -> None:
    """Each process is below its own limit."""
    hoard = "import sys; x = bytearray(60 << 20); print(1, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    hoarders = [subprocess.Popen([sys.executable, "-c", hoard], **pipes) for _ in range(3)]
    try:
        before = UseMeter(Limits()).look(lambda: {os.getpid()}).memory
        assert all(each.stdout.readline() == b"1\n" for each in hoarders)
        now = UseMeter(Limits()).look(partial(tree, os.getpid()))
        assert 180 << 20 < now.memory - before < 1 << 30
    finally:
        for each in hoarders:
            each.communicate(b"")


HELD = """
import mmap, os, sys, threading
SIZE = 60 << 20
kind = sys.argv[1]
if kind == "memfd":  # written, never mapped
    held = [os.memfd_create(str(n)) for n in range(3)]
    for each in held:
        os.write(each, bytes(SIZE))
elif kind == "shared":  # in forks, which wait; and no longer in the memory of any
    for n in range(3):
        held = mmap.mmap(-1, SIZE)
        held.write(bytes(range(1, 256)) * (SIZE // 255))
        if os.fork() == 0:
            held.madvise(mmap.MADV_DONTNEED)
            break
        held.madvise(mmap.MADV_DONTNEED)
elif kind == "forked":  # one and the same memory, in four processes
    held = bytearray(b"x") * (3 * SIZE)
    any(os.fork() == 0 for n in range(3))
elif kind == "threads":
    done = threading.Event()
    for n in range(300):
        threading.Thread(target=done.wait, daemon=True).start()
elif kind == "files":
    held = [open("/dev/null") for n in range(300)]
os.write(1, b"1\\n")
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["memfd", "shared", "forked", "threads", "files"])
def test_m08_m09_what_is_really_used_counts(kind: str) -> None:
    """180 MB that belong to no process, or to four processes at once; 300 threads.

    300 open files.
    """
    command = [sys.executable, "-c", HELD, kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        try:
            for _ in range(4 if kind == "forked" else 3 if kind == "shared" else 1):
                assert holder.stdout.readline() == b"1\n"
            # limits so low that the meter looks closely
            now = UseMeter(Limits(memory=1 << 20)).look(partial(tree, holder.pid))
        finally:
            holder.stdin.close()
    megabytes = now.memory >> 20
    assert (megabytes >= 170) == (kind in ("memfd", "shared", "forked"))
    assert megabytes < 300  # counted once
    assert (now.threads > 300) == (kind == "threads")
    assert (now.files > 300) == (kind == "files")


@pytest.mark.processes
def test_of_too_many_processes_only_their_number_is_taken() -> None:
    """The processes grow while the meter looks, on the same cores."""
    now = UseMeter(Limits(processes=2)).look(lambda: [os.getpid()] * 3)
    assert now == Usage(processes=3)


def test_a_look_that_takes_long_counts_again_for_they_grow(monkeypatch) -> None:
    """A fork bomb on a machine so busy that looking at one process takes a second."""
    monkeypatch.setattr(meter, "COUNT_AGAIN", 0.0)
    found = iter([[os.getpid()] * 2, [os.getpid()] * 3])
    now = UseMeter(Limits(processes=2)).look(lambda: next(found))
    assert (now.processes, now.memory) == (3, 0)


@pytest.mark.processes
def test_m02_times_of_what_has_ended_stay_counted() -> None:
    """Otherwise the end of a process that computed for long would turn the clock back."""
    burn = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\n"
    command = [sys.executable, "-c", f"{burn}sys.stdin.read()"]
    meter = UseMeter(Limits())
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as burner:
        assert burner.stdout
        assert burner.stdout.readline() == b"1\n"
        before = meter.look(lambda: {burner.pid}).computed_s
        burner.communicate(b"")
    assert before >= 0.3
    assert meter.look(lambda: {burner.pid}).computed_s == before


@pytest.mark.processes
def test_empty_files_take_memory(tmp_path: Path) -> None:
    """Each file takes a kilobyte of the kernel, which no limit on a folder's size counts."""
    needs_sandbox()
    many = (
        "import os\nfor n in range(3000): open(f'/dev/shm/{n}', 'w').close()\n"
        "os.write(1, b'1\\n')\nos.read(0, 1)"  # sys.stdin would allocate memory between two looks
    )
    # not /tmp: this checkout, and its Python, may be there
    folder = ["--size", str(1 << 20), "--tmpfs", "/dev/shm"]
    within = ["--unshare-pid", "--dev-bind", "/", "/", *folder]
    command = ["bwrap", *within, "--", sys.executable, "-I", "-c", many]
    box = Bwrap(tmp_path, tmp_path, Limits(disk=1 << 20))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        box.process = process
        assert process.stdout.readline() == b"1\n"
        counted = box.usage().memory
        without = UseMeter(Limits()).look(partial(tree, process.pid)).memory
        # the machine's own files are not counted
        assert bwrap.memory_of_names(box.inside, 2 << 20) == 0
        process.communicate(b"")
    assert 3000 << 10 <= counted - without < 4000 << 10
