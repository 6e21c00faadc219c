"""Wrong answers to lab 19 fail with their hints."""

from tests.labs.both_ways import every_hint_is_met, fails_with_its_hint

test_a_wrong_answer_fails_with_its_hint = fails_with_its_hint("19")
test_every_hint_has_a_wrong_answer = every_hint_is_met("19")
