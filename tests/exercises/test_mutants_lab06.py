"""Wrong answers to lab 06: each fails, with the hint that fits it."""

from tests.exercises.wrong_answers import of_lab

test_a_mutant_fails_with_its_hint = of_lab("06")
