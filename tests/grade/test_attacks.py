"""Every attack gets the points for the work that it really does, and no other points."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ddpkit.grade import store
from tests.grade.attacks import ATTACKS
from tests.grade.conftest import LIMIT, Graded, grade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3200)]


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(graded: Graded, name: str) -> None:
    result = graded.results[name]
    assert result.status == "graded", result.notes
    token, shift = result.exercises
    told = "\n".join([*result.notes, *token.feedback, *shift.feedback])
    assert (token.status, shift.status) == (ATTACKS[name].token, ATTACKS[name].shift), told
    for one in (token, shift):
        assert (one.earned == one.points) == (one.status == "pass"), told


def test_only_what_was_computed_is_paid(graded: Graded) -> None:
    for name in ("as_shipped", "everything_patched", "swallows_interrupts", "leaves"):
        assert graded.results[name].exercises[0].earned == 0


def test_feedback_can_be_acted_on(graded: Graded) -> None:
    results = graded.results
    told = "\n".join(results["syntax_error_and_endless_loop"].exercises[0].feedback)
    assert "line 2: invalid syntax" in told
    told = "\n".join(results["wrong_and_deadlocked"].exercises[1].feedback)
    assert "your cell who_waits, line 3" in told
    assert "Hint: All ranks wait in recv" in told
    told = "\n".join(results["right_sum_wrong_way"].exercises[0].feedback)
    # the expected text is the same for all seeds, so it is no secret
    assert "expected '0→1 1→0'" in told


def test_what_was_not_as_handed_out_is_told(graded: Graded) -> None:
    assert any("Check cells" in note for note in graded.results["cells_in_disorder"].notes)
    assert any("same id" in note for note in graded.results["no_ids"].notes)
    assert any("names the kernel 'ir'" in note for note in graded.results["no_ids"].notes)
    assert "printed without end" in "\n".join(graded.results["floods"].exercises[1].feedback)


def test_secret_values_are_not_told(graded: Graded) -> None:
    told = "\n".join(graded.results["wrong_and_deadlocked"].exercises[0].feedback)
    assert "gave[0]" in told
    assert "expected tensor" not in told
    assert "expected 1" not in told


def test_nothing_is_left_behind(graded: Graded) -> None:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "987654" not in listed
    kept = ["lock", "proofs", "results", "secret"]
    assert sorted(path.name for path in graded.out.iterdir()) == kept


def test_killed_and_resumed(graded: Graded) -> None:
    """A killed grader loses only the notebooks in flight, leaves no process, and can be resumed."""
    assert graded.left == []
    assert 1 <= len(graded.kept) < len(ATTACKS)
    assert {path: path.stat().st_mtime_ns for path in graded.kept} == graded.kept
    assert graded.refused.status == "refused"
    assert list(graded.results) == sorted(ATTACKS)


def test_a_rerun_repeats_nothing(graded: Graded) -> None:
    files = {
        path: path.stat().st_mtime_ns
        for path in (graded.out / "results").iterdir()
        if "refused" not in path.name  # nothing ran for the refused file; it is refused again
    }
    done = grade(
        graded.submissions,
        *("--lab", "00", "--out", graded.out, "--resume", "--limit", LIMIT),
    )
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert len(store.load(graded.out)) == 1 + len(ATTACKS)


def test_results_are_not_overwritten_unasked(graded: Graded, tmp_path: Path) -> None:
    done = grade(graded.submissions, "--lab", "00", "--out", graded.out)
    assert done.returncode == 1
    assert "--resume" in done.stderr
