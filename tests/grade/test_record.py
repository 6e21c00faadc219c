"""A sandbox may forge its record, but cannot turn the clock back forever."""

import json
import os

import pytest

from ddpkit.grade.engine import _Watch
from ddpkit.grade.sandbox.base import Limits, Usage

BEGUN = [{"begins": 0}, {"ends": 0, "claims": [], "errors": []}, {"begins": 1}]
END = {"ends": 1, "claims": [{"key": "f.0"}], "errors": []}


def told(*lines: object) -> list[str | None]:
    watch = _Watch(Usage, -1, Limits(), cells=2)
    return [watch._read_line(json.dumps(line).encode()) for line in lines]


def test_an_honest_record() -> None:
    assert told(*BEGUN, END, {"done": True}) == [None, None, None, None, ""]


@pytest.mark.parametrize(
    "forged",
    [
        *({"begins": cell} for cell in (1, 0, -1, 2, 10**9, "x")),
        *({"ends": cell, "claims": [], "errors": []} for cell in (0, 2)),
        {"ends": 1},
        [],
        ["begins"],
        "text",
        {"begins": float("inf")},
        {"ends": 1, "claims": 5, "errors": []},
        {"ends": 1, "claims": [], "errors": "abc"},
        {"done": False},
        {"done": "yes"},
        {"died": 0},
        {},
    ],
    ids=json.dumps,
)
def test_m01_a_forged_line_ends_the_run_and_is_the_students(forged: object) -> None:
    assert told(*BEGUN, forged)[-1] == "exited"


@pytest.mark.parametrize("line", [{"done": False}, {"died": 1}, {}], ids=json.dumps)
def test_m01_before_the_first_cell_of_the_students_it_is_the_machines_fault(line: object) -> None:
    assert told(line) == told(*BEGUN[:2], line)[2:] == ["infra_error"]


def fed(data: bytes, limits: Limits) -> tuple[str | None, int]:
    """Return the reason that ends the reading of a record, and the number of kept bytes."""
    reading, writing = os.pipe()
    watch = _Watch(Usage, reading, limits, cells=2)
    why = None
    try:
        for start in range(0, len(data), 1 << 15):
            os.write(writing, data[start : start + (1 << 15)])
            why = watch._read()
            if why is not None:
                break
    finally:
        os.close(reading)
        os.close(writing)
    return why, len(watch.rest)


def test_m14_a_long_line_is_not_read_to_its_end() -> None:
    """Python would turn 57 MB of `[],` into 1.7 GB."""
    limits = Limits(line=1 << 18, output=1 << 20)
    begun = b"".join(json.dumps(line).encode() + b"\n" for line in BEGUN)
    why, kept = fed(begun + b"[]," * 300_000, limits)
    assert why == "flood"
    assert kept <= limits.line + (1 << 16)
    assert fed(begun + b"{" + b" " * 1000, limits) == (None, 1001)


def test_m14_many_lines_are_too_much_too() -> None:
    begun = b"".join(json.dumps(line).encode() + b"\n" for line in BEGUN)
    line = b" " * (1 << 17) + b'{"begins": 1}\n'
    assert fed(begun + line, Limits(output=1 << 16))[0] == "flood"


def test_a_cell_ends_once() -> None:
    assert told(*BEGUN, END, END)[-1] == "exited"
