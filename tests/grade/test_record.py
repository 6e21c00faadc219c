"""What a sandbox tells of itself may be forged: it cannot turn the clock back for ever."""

import json

import pytest

from ddpkit.grade.engine import _Watch
from ddpkit.grade.sandbox import Limits, Usage

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
        "text",
    ],
    ids=json.dumps,
)
def test_a_forged_line_ends_the_run(forged: object) -> None:
    assert told(*BEGUN, forged)[-1] == "exited"


def test_a_cell_ends_once() -> None:
    assert told(*BEGUN, END, END)[-1] == "exited"
