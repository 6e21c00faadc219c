"""Grading: seconds for a correct submission, and a class of 60 with a hostile third.

    python -m benchmarks.grading [--class-size 60] [--jobs 2]
    python -m benchmarks.grading --slow [--class-size 60] [--jobs 2]
    python -m benchmarks.grading --solutions
    python -m benchmarks.grading --reports [--students 200] [--labs 12]

Without an option, prints both. `--slow` prints the seconds of an honest class and of a class with a
slow third. `--solutions` prints the seconds of grading each lab's own solution, one at a time.
`--reports` copies one result for a course of --students students and --labs labs, and prints the
seconds of `ddpkit grade --resume` and of reports.

The class is graded twice, into two folders with one secret, and the scores must be the same. At the
end nothing may be left: no process of a sandbox, no temporary file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from ddpkit.errors import GradeError
from ddpkit.files import CHECKOUT
from ddpkit.grade import store
from ddpkit.grade.classroom import Classroom, key_of
from ddpkit.grade.course import read_secret
from ddpkit.grade.sandbox import levels
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.submission import digest
from ddpkit.grade.workplace import workplace
from tests.grade.attacks import ATTACKS, notebook
from tests.grade.slow import SLOW, slow_notebook


class Graded(NamedTuple):
    """The results of `ddpkit grade`, and its costs."""

    seconds: float
    results: list[store.Result]
    megabytes: float
    computed_s: float


LIMIT_S = 10.0  # limit of a cell, in seconds
ALL_OVER = f"{len(list((CHECKOUT / 'labs').glob('[0-9]*.ipynb'))):02}"  # no lab is open
HOSTILE = [name for name in ATTACKS if name not in ("right", "cells_in_disorder", "no_ids")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--class-size", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--solutions", action="store_true")
    parser.add_argument("--reports", action="store_true")
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--labs", type=int, default=12)
    options = parser.parse_args()
    try:
        levels.require()
    except GradeError as error:
        sys.exit(str(error))
    before = _outside()
    with tempfile.TemporaryDirectory(prefix="ddpkit-bench-") as folder:
        if options.reports:
            _report(Path(folder), options.students, options.labs)
            return
        if options.slow:
            _slow(Path(folder), options.class_size, options.jobs)
            return
        if options.solutions:
            _solutions(Path(folder))
            return
        _measure(Path(folder), options.class_size, options.jobs)
    print(f"new in folders of others: {', '.join(sorted(_outside() - before)) or 'nothing'}")


def _measure(folder: Path, size: int, jobs: int) -> None:
    (folder / "secret").write_text("a secret of benchmarks")
    _write_class(folder / "one", 1)
    _grade(folder, "one", "proof", 1)  # proves the solution, so that it is not measured below
    seconds = [
        _grade(folder, "one", f"one{number}", 1, seed_of="proof").results[0].seconds
        for number in range(3)
    ]
    print(f"a correct submission alone: {min(seconds):.1f} s (best of {len(seconds)})")
    _write_class(folder / "class", size)
    first = _grade(folder, "class", "first", jobs, seed_of="proof")
    print(
        f"{size} submissions, {size // 3} hostile, {jobs} at a time: {first.seconds:.0f} s", end=""
    )
    print(f" = {first.seconds / size:.1f} s each")
    print(f"the grader itself: at most {first.megabytes:.0f} MB, {first.computed_s:.1f} s of CPU")
    again = _grade(folder, "class", "second", jobs, seed_of="proof")
    pairs = zip(first.results, again.results, strict=True)
    differ = [one.name for one, other in pairs if _scores(one) != _scores(other)]
    print(f"a second run gives {'other' if differ else 'the same'} scores {' '.join(differ)}")
    left = sorted(path.name for path in (folder / "tmp").iterdir())
    print(f"left behind: {', '.join(left) or 'no file'}, {_processes(folder)} processes")


def _slow(folder: Path, size: int, jobs: int) -> None:
    """Print the seconds of an honest class and of a class with a third of slow notebooks."""
    (folder / "secret").write_text("a secret of benchmarks")
    _write_class(folder / "one", 1)
    _grade(folder, "one", "proof", 1)
    seconds = {}
    for kind in ("honest", "slow"):
        for number in range(size):
            slow = kind == "slow" and number % 3 == 2
            path = folder / kind / f"{number:03}" / "lab.ipynb"
            path.parent.mkdir(parents=True)
            name = list(SLOW)[number // 3 % len(SLOW)]
            path.write_text(slow_notebook(name) if slow else json.dumps(notebook("right")))
        done = _grade(folder, kind, f"{kind}-graded", jobs, seed_of="proof")
        seconds[kind] = done.seconds
        each = sorted(result.seconds for result in done.results)
        print(f"{kind}: {done.seconds:.0f} s, the slowest {each[-1]:.1f} s", flush=True)
    print(f"ratio {seconds['slow'] / seconds['honest']:.2f}")


def _solutions(folder: Path) -> None:
    """Print the seconds of grading the solution of each lab; every solution has all points."""
    (folder / "secret").write_text("a secret of benchmarks")
    graded = _grade(folder, str(CHECKOUT / "solutions"), "solved", 1, limit_s=60.0)
    for result in graded.results:
        print(f"{result.name}: {result.seconds:.1f} s, {result.earned:g} of {result.points:g}")
    seconds = [result.seconds for result in graded.results]
    print(f"together {sum(seconds):.0f} s, median {statistics.median(seconds):.1f} s")


def _report(folder: Path, students: int, labs: int) -> None:
    """Print the seconds of `--resume` and of each report, for a course of copies of one result."""
    (folder / "secret").write_text("a secret of benchmarks")
    _write_class(folder / "one", 1)
    (result,) = _grade(folder, "one", "course", 1).results
    (notebook,) = (folder / "one").rglob("*.ipynb")
    store.file_of(folder / "course", result.name).unlink()
    (folder / "roster.csv").write_text(_roster(students))
    keys = _keys(folder, notebook, [f"{lab:02}" for lab in range(labs)])
    for student in range(students):
        for lab, key in keys.items():
            name = f"s{student:03}/{lab}_lab.ipynb"
            (path := folder / "handed-in" / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(notebook.read_bytes())
            store.save(folder / "course", replace(result, name=name, lab=lab, key=key))
    print(f"{students} students, {labs} labs: {students * labs} results")
    out, roster = str(folder / "course"), str(folder / "roster.csv")
    command = [
        "grade",
        str(folder / "handed-in"),
        "--out",
        out,
        "--resume",
        "--limit",
        str(LIMIT_S),
        "--open",
        ALL_OVER,
    ]
    _time("grade --resume", *command, "--secret", str(folder / "secret"))
    for form in ("gradebook", "canvas", "statistics", "csv", "html", "written", "sources"):
        extra = ["--roster", roster] if form in ("gradebook", "canvas") else []
        output = str(folder / f"report.{form}")
        _time(f"report --format {form}", "report", out, "--format", form, "-o", output, *extra)
    pages = ["--each", str(folder / "pages"), "--roster", roster]
    _time("report --format html --each", "report", out, "--format", "html", *pages)


def _keys(folder: Path, notebook: Path, labs: list[str]) -> dict[str, str]:
    """Return the key of a notebook as a submission of each lab; all labs are proven before."""
    secret = read_secret(folder / "secret")
    with workplace() as work:
        room = Classroom(
            CHECKOUT, folder / "course", secret, work, Limits.of_cells(LIMIT_S), ALL_OVER
        )
        content = digest(notebook)
        return {lab: key_of(content, room.course(lab), room, None) for lab in labs}


def _roster(students: int) -> str:
    return "\n".join(["id,name", *(f"s{n:03},Student {n}" for n in range(students)), ""])


def _time(what: str, *words: str) -> None:
    begun = time.monotonic()
    command = [sys.executable, "-m", "ddpkit", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"{what}: {time.monotonic() - begun:.1f} s")


def _write_class(folder: Path, size: int) -> None:
    for number in range(size):
        hostile = number % 3 == 2
        name = HOSTILE[number // 3 % len(HOSTILE)] if hostile else "right"
        path = folder / f"{number:03}-{name}" / "lab.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook(name)))


def _grade(
    folder: Path,
    submissions: str,
    out: str,
    jobs: int,
    seed_of: str = "",
    limit_s: float = LIMIT_S,
) -> Graded:
    """Grade submissions by `ddpkit grade`; return the results and the costs."""
    (folder / "tmp").mkdir(exist_ok=True)
    target = folder / out
    if seed_of:  # the solution is proven once
        target.mkdir()
        (target / "proofs").symlink_to(folder / seed_of / "proofs")
    command = [sys.executable, "-m", "ddpkit", "grade", str(folder / submissions)]
    command += ["--out", str(target), "--jobs", str(jobs), "--limit", str(limit_s)]
    command += ["--secret", str(folder / "secret"), "--open", ALL_OVER]
    environ = {**os.environ, "TMPDIR": str(folder / "tmp")}
    begun = time.monotonic()
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as grader:
        own = _own_use(psutil.Process(grader.pid))
    if grader.returncode:
        raise subprocess.CalledProcessError(grader.returncode, command)
    return Graded(time.monotonic() - begun, store.load(target), *own)


def _own_use(grader: psutil.Process) -> tuple[float, float]:
    """Return the largest memory of the grader outside sandboxes, in MB, and its CPU seconds."""
    most, computed = 0.0, 0.0
    with suppress(psutil.Error):
        while grader.is_running() and grader.status() != psutil.STATUS_ZOMBIE:
            own = [grader, *(each for each in grader.children() if each.name() != "bwrap")]
            memory = 0.0
            for each in own:
                with suppress(psutil.Error):
                    memory += each.memory_full_info().pss / 1e6  # forks share pages
            most, computed = max(most, memory), max(computed, sum(grader.cpu_times()[:2]))
            time.sleep(0.1)
    return most, computed


def _scores(result: store.Result) -> list[tuple[str, str, float]]:
    return [(one.name, one.status, one.earned) for one in result.exercises]


def _outside() -> set[str]:
    """Return the files in the places where a student's code would leave files, if it could."""
    home = Path.home()
    folders = (home, home / ".ipython", home / ".local" / "share" / "jupyter")
    shared = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
    return {str(path) for each in (*folders, *shared) if each.is_dir() for path in each.iterdir()}


def _processes(folder: Path) -> int:
    """Return the number of processes that name the folder, or that an attack has left running."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return sum(str(folder / "tmp") in line or "987654" in line for line in listed.splitlines())


if __name__ == "__main__":
    main()
