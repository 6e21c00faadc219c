"""Right answers to lab 17 of other makes pass."""

from tests.labs.both_ways import passes

test_a_right_answer_of_another_make_passes = passes("17")
