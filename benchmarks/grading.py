"""Grading: seconds for a correct submission, and a class of 60 of which a third is hostile.

    python -m benchmarks.grading [--class-size 60] [--jobs 2]
    python -m benchmarks.grading --reports [--students 200] [--labs 12]

Prints both. With `--reports` instead: one result is copied for a course of so many students and
labs, and it prints the seconds of `ddpkit grade --resume`, which finds all graded, and of reports.

The class is graded twice, into two folders with one secret: the scores must be the
same. At the end nothing may be left: no process of a sandbox, no file in the folder for temporary
ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade import levels, store
from tests.grade.attacks import ATTACKS, notebook

HOSTILE = [name for name in ATTACKS if name not in ("right", "cells_in_disorder", "no_ids")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--class-size", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
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
        _measure(Path(folder), options.class_size, options.jobs)
    print(f"new in folders of others: {', '.join(sorted(_outside() - before)) or 'nothing'}")


def _measure(folder: Path, size: int, jobs: int) -> None:
    (folder / "secret").write_text("a secret of benchmarks")
    _write_class(folder / "one", 1)
    _grade(folder, "one", "proof", 1)  # proves the solution, so that it is not measured below
    seconds = [
        _grade(folder, "one", f"one{number}", 1, seed_of="proof")[1][0].seconds
        for number in range(3)
    ]
    print(f"a correct submission alone: {min(seconds):.1f} s (best of {len(seconds)})")
    _write_class(folder / "class", size)
    first, results = _grade(folder, "class", "first", jobs, seed_of="proof")
    print(f"{size} submissions, {size // 3} hostile, {jobs} at a time: {first:.0f} s", end="")
    print(f" = {first / size:.1f} s each")
    _, again = _grade(folder, "class", "second", jobs, seed_of="proof")
    differ = [a.name for a, b in zip(results, again, strict=True) if _scores(a) != _scores(b)]
    print(f"a second run gives {'other' if differ else 'the same'} scores {' '.join(differ)}")
    left = sorted(path.name for path in (folder / "tmp").iterdir())
    print(f"left behind: {', '.join(left) or 'no file'}, {_processes(folder)} processes")


def _report(folder: Path, students: int, labs: int) -> None:
    """Print the seconds of `--resume` and of each report, for a course of copies of one result."""
    (folder / "secret").write_text("a secret of benchmarks")
    _write_class(folder / "one", 1)
    _, (result,) = _grade(folder, "one", "course", 1)
    (notebook,) = (folder / "one").rglob("*.ipynb")
    store.file_of(folder / "course", result.name).unlink()
    (folder / "roster.csv").write_text(_roster(students))
    for student in range(students):
        for lab in range(labs):
            name = f"s{student:03}/{lab:02}_lab.ipynb"
            (path := folder / "handed-in" / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(notebook.read_bytes())
            store.save(folder / "course", replace(result, name=name, lab=f"{lab:02}"))
    print(f"{students} students, {labs} labs: {students * labs} results")
    out, roster = str(folder / "course"), str(folder / "roster.csv")
    command = ["grade", str(folder / "handed-in"), "--out", out, "--resume", "--limit", "10"]
    _time("grade --resume", *command, "--secret", str(folder / "secret"))
    for form in ("gradebook", "canvas", "statistics", "csv", "html", "written", "sources"):
        extra = ["--roster", roster] if form in ("gradebook", "canvas") else []
        output = str(folder / f"report.{form}")
        _time(f"report --format {form}", "report", out, "--format", form, "-o", output, *extra)
    pages = ["--each", str(folder / "pages"), "--roster", roster]
    _time("report --format html --each", "report", out, "--format", "html", *pages)


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
    folder: Path, submissions: str, out: str, jobs: int, seed_of: str = ""
) -> tuple[float, list[store.Result]]:
    """Seconds of `ddpkit grade`, and its results."""
    (folder / "tmp").mkdir(exist_ok=True)
    target = folder / out
    if seed_of:  # the solution is proven once
        target.mkdir()
        (target / "proofs").symlink_to(folder / seed_of / "proofs")
    command = [sys.executable, "-m", "ddpkit", "grade", str(folder / submissions)]
    command += ["--out", str(target), "--jobs", str(jobs), "--limit", "10"]
    command += ["--secret", str(folder / "secret")]
    environ = {**os.environ, "TMPDIR": str(folder / "tmp")}
    begun = time.monotonic()
    subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun, store.load(target)


def _scores(result: store.Result) -> list[tuple[str, str, float]]:
    return [(one.name, one.status, one.earned) for one in result.exercises]


def _outside() -> set[str]:
    """What lies where a student's code would leave something, if it could."""
    home = Path.home()
    folders = (home, home / ".ipython", home / ".local" / "share" / "jupyter")
    shared = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
    return {str(path) for each in (*folders, *shared) if each.is_dir() for path in each.iterdir()}


def _processes(folder: Path) -> int:
    """Processes that name the folder, or are what an attack leaves running."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return sum(str(folder / "tmp") in line or "987654" in line for line in listed.splitlines())


if __name__ == "__main__":
    main()
