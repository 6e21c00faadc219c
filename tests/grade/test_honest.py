"""Right work in an unusual form loses no points: the grader agrees with the notebook."""

from __future__ import annotations

import pytest

from tests.grade.honest import HONEST, LAB_TEXT, answered, merged


@pytest.mark.parametrize("name", HONEST)
def test_what_passes_in_the_notebook_passes_the_grader(name: str) -> None:
    plan = merged(HONEST[name])
    assert (plan.missing, plan.broken, plan.blank) == ([], {}, set()), plan.notes
    assert answered(plan) == {"double": 14, "triple": 21}


def test_the_lab_as_shipped_is_blank() -> None:
    assert merged(LAB_TEXT).blank == {"double", "triple"}
