"""`python -m benchmarks.scripts`: training programs under `ddpkit run`, as a table for docs/run.md.

Prints a row for each program: the exit, the real time of the run, the hidden share of the
communication, and the most memory of a rank. With --write, the rows of the programs that ran
replace their rows in docs/run.md. The programs are in `_programs`, `_newer_programs` and
`_packaged`.

    python -m benchmarks.scripts [NAME ...] [--machine A100] [--link "100 Gbit/s, 10 us"] [--write]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._newer_programs import NEWER
from benchmarks._packaged import PACKAGED
from benchmarks._programs import HEAD
from benchmarks._programs import PROGRAMS as OLDER
from ddpkit.text import columns, size

PROGRAMS = OLDER | NEWER
LIMIT = 600  # seconds for a program
REFUSALS = (
    *("`ddpkit run` has no replacement for", "no GPU here, but this call needs a real GPU"),
    "A100 has compute capability",
)
PAGE = Path(__file__).parents[1] / "docs" / "run.md"
TITLES = ["program", "outcome", "real time", "hidden", "memory of a rank"]


def run(name: str, machine: str, link: str) -> list[str]:
    """Run a program on two ranks; return its row of the table."""
    packages, program = PACKAGED.get(name) or ("", f"{HEAD}\n{PROGRAMS[name]}\n")
    missing = [each for each in packages.split() if importlib.util.find_spec(each) is None]
    if missing:
        text = f"skipped: `pip install {packages}` installs the missing {', '.join(missing)}"
        return [name, text, "", "", ""]
    with tempfile.TemporaryDirectory() as folder:
        script, numbers = Path(folder, "train.py"), Path(folder, "numbers.json")
        script.write_text(program)
        begun = time.monotonic()
        command = [sys.executable, "-m", "ddpkit", "run", "-n", "2", "--machine", machine]
        command += ["--link", link, "--json", str(numbers), str(script)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return [name, f"not over after {LIMIT} s", "", "", ""]
        took = f"{time.monotonic() - begun:.0f} s"
        if done.returncode:
            return [name, outcome(done.stderr), took, "", ""]
        found = json.loads(numbers.read_text())
    return [name, "runs", took, *_numbers(found)]


def outcome(stderr: str) -> str:
    """Return the kit's refusal on the stderr of a failed run; else the last line, as a failure."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for line in reversed(lines):
        for refusal in REFUSALS:
            if refusal in line:
                return f"refused: {line[line.index(refusal) :]}"
    errors = [line for line in lines if "Error: " in line]
    return f"fails: {(errors or lines or ['nothing on stderr'])[-1]}"


def written(page: str, rows: list[list[str]]) -> str:
    """Return a page whose table has the given rows; the rows of other programs stay.

    Raises:
        ValueError: The page has no table of programs.
    """
    lines = page.splitlines()
    head = _line(TITLES)
    if head not in lines:
        raise ValueError(f"the page has no line {head!r}: put the head of the table there")
    begin = end = lines.index(head)
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    known = {line.split(" | ")[0].removeprefix("| "): line for line in lines[begin + 2 : end]}
    known |= {row[0]: _line(row) for row in rows}
    table = [head, _line(["---"] * len(TITLES))]
    table += [known[name] for name in (*PROGRAMS, *PACKAGED) if name in known]
    return "\n".join([*lines[:begin], *table, *lines[end:], ""])


def _line(row: list[str]) -> str:
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |"


def _numbers(found: dict[str, Any]) -> list[str]:
    """Return the hidden share of communication, and the most memory of a rank."""
    ranks = found["run"]["by_rank"]
    hidden = sum(each.get("overlapped", 0) for each in ranks)
    whole = hidden + sum(each.get("exposed", 0) for each in ranks)
    most = [sum(each["memory_bytes"].values()) for each in ranks if each["memory_bytes"]]
    return [f"{hidden / whole:.0%}" if whole else "", size(max(most)) if most else ""]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs, by the beginning of their names")
    parser.add_argument("--machine", default="A100")
    parser.add_argument("--link", default="100 Gbit/s, 10 us")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/run.md")
    given = parser.parse_args()
    rows = []
    for name in (*PROGRAMS, *PACKAGED):
        if not given.names or any(name.startswith(each) for each in given.names):
            rows.append(run(name, given.machine, given.link))
            print(" · ".join(rows[-1]), file=sys.stderr, flush=True)
            if given.write and not rows[-1][1].startswith("skipped"):
                PAGE.write_text(written(PAGE.read_text(), rows[-1:]))
    print("\n".join(columns([TITLES, *rows])))


if __name__ == "__main__":
    main()
