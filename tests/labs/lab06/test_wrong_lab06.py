"""Wrong answers to lab 06 fail with their hints."""

import pytest

from ddpkit.checks.lab06 import graphs
from tests.labs.both_ways import every_hint_is_met, fails_with_its_hint

test_a_wrong_answer_fails_with_its_hint = fails_with_its_hint("06")
test_every_hint_has_a_wrong_answer = every_hint_is_met("06")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that walks each path computes for as long as it may."""
    monkeypatch.setattr(graphs, "FOR_EVER", 5)
