"""Every lab at both ends: as shipped it gets nothing, solved it gets everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpkit.grade import store
from tests.grade.attacks import ROOT
from tests.grade.conftest import grade, needs_sandbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1600)]


def test_every_lab_gets_nothing_and_every_solution_everything(tmp_path: Path) -> None:
    needs_sandbox()
    done = grade(ROOT / "labs", "--out", tmp_path / "out", "--jobs", "2")
    assert done.returncode == 0, done.stderr  # it would stop at a solution without all points
    labs = sorted(path.name for path in (ROOT / "labs").glob("[0-9][0-9]_*.ipynb"))
    results = store.load(tmp_path / "out")
    assert [result.name for result in results] == labs
    proofs = sorted(path.name[:2] for path in (tmp_path / "out" / "proofs").iterdir())
    assert proofs == [name[:2] for name in labs]
    for result in results:
        assert (result.earned, {one.status for one in result.exercises}) == (0, {"fail"})
        assert result.points > 0
