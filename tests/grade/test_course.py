"""Every lab as shipped gets no points; every solution gets all points.

In between, a mutant costs its own exercise's points, and no others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ddpkit.grade import store
from ddpkit.grade.store import Result
from tests.grade.attacks import ROOT
from tests.grade.conftest import grade, needs_sandbox
from tests.grade.mutated import Mutated, mutated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1600)]

LABS = sorted(path.name for path in (ROOT / "labs").glob("[0-9][0-9]_*.ipynb"))
NUMBERS = [name[:2] for name in LABS]
SOME = {"01": 4, "05": 4}  # lab -> number of mutated notebooks; DDPKIT_ALL_MUTANTS runs all


def write(folder: Path, notebooks: dict[str, Mutated]) -> Path:
    folder.mkdir()
    for name, each in notebooks.items():
        (folder / name).write_text(json.dumps(each.notebook))
    return folder


def mistakes(notebooks: dict[str, Mutated], results: dict[str, Result]) -> list[str]:
    assert all(results[name].status == "graded" for name in notebooks)
    return [said for name, each in notebooks.items() for said in each.mistakes(results[name])]


def test_every_lab_at_both_ends_and_in_between(tmp_path: Path) -> None:
    needs_sandbox()
    notebooks = {f"mutated{lab}.ipynb": mutated(lab)[which] for lab, which in SOME.items()}
    wrong = write(tmp_path / "wrong", notebooks)
    shipped = [ROOT / "labs" / name for name in LABS]
    over = f"{len(NUMBERS):02}"  # no lab is open, because a lab carries answers of earlier labs
    done = grade(*shipped, wrong, "--out", tmp_path / "out", "--jobs", "2", "--open", over)
    assert done.returncode == 0, done.stderr  # a solution without all points would stop the grader
    results = {result.name: result for result in store.load(tmp_path / "out")}
    assert sorted(results) == sorted([*LABS, *notebooks])
    proofs = sorted(path.name[:2] for path in (tmp_path / "out" / "proofs").iterdir())
    assert proofs == NUMBERS
    for name in LABS:
        result = results[name]
        assert (result.earned, {one.status for one in result.exercises}) == (0, {"fail"})
        assert result.points > 0
    found = mistakes(notebooks, results)
    assert not found, "\n".join(found)


@pytest.mark.skipif(
    not os.environ.get("DDPKIT_ALL_MUTANTS"),
    reason="all mutants in the sandbox take a quarter of an hour: DDPKIT_ALL_MUTANTS=1",
)
@pytest.mark.parametrize("lab", NUMBERS)
def test_every_mutant_loses_its_points_and_no_others(tmp_path: Path, lab: str) -> None:
    needs_sandbox()
    notebooks = {f"{number:02}.ipynb": each for number, each in enumerate(mutated(lab))}
    wrong = write(tmp_path / "wrong", notebooks)
    done = grade(wrong, "--out", tmp_path / "out", "--jobs", "2", "--limit", "20", "--lab", lab)
    assert done.returncode == 0, done.stderr
    results = {result.name: result for result in store.load(tmp_path / "out")}
    found = mistakes(notebooks, results)
    assert not found, "\n".join(found)
