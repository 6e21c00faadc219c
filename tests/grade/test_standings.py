"""The class's table of lab 15: pseudonyms, medians, places; wrong answers are not ranked."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.grade import store
from ddpkit.grade.publish.standings import EXERCISE, NOBODY, standings
from ddpkit.grade.score import Score
from ddpkit.grade.store import Result


def result(name: str, *times: float, sent: float = 2e7) -> Result:
    measured = [(("ms", ms), ("loss", 2.9), ("sent", sent), ("peak", 8e6)) for ms in times]
    flat = tuple(pair for each in measured for pair in each)
    exercise = Score(EXERCISE, "pass", 10.0, 10.0, (), (), flat)
    return Result(name, "key", "graded", "15", "bwrap", 14.0, 14.0, exercises=(exercise,))


CLASS = [
    result("ada/15.ipynb", 2000, 2100, 1900),
    result("bob/15.ipynb", 1000, 1000, 1500),
    result("cem/15.ipynb", 1020, 1020, 1020),
    result("dan/15.ipynb"),
    result("eva/15.ipynb"),
]


def test_the_fastest_comes_first_and_equals_share_a_place() -> None:
    rows = standings(CLASS).splitlines()
    assert [row.split()[:3] for row in rows[1:4]] == [
        ["1", "bob/15.ipynb", "1,000"],
        ["1", "cem/15.ipynb", "1,020"],
        ["3", "ada/15.ipynb", "2,000"],
    ]
    assert rows[-1].strip() == "not ranked: 2 of 5"
    assert standings(CLASS[3:]) == NOBODY


def test_the_table_has_pseudonyms_and_its_teacher_knows_whose(tmp_path: Path) -> None:
    for each in CLASS:
        store.save(tmp_path, each)
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--format", "standings"])
    assert done.exit_code == 0, done.output
    words = set(re.findall(r"\w+", done.output))  # whole words: a random code may contain "ada"
    assert words.isdisjoint(each.name.split("/")[0] for each in CLASS)
    with (tmp_path / "codes.csv").open(newline="") as stream:
        codes = {name: code for code, name in list(csv.reader(stream))[1:]}
    assert codes["bob"] in done.output.splitlines()[1]


@pytest.mark.parametrize("each", CLASS)
def test_measurements_come_back_from_disk(each: Result, tmp_path: Path) -> None:
    store.save(tmp_path, each)
    assert store.load(tmp_path) == [each]
