"""Right answers to lab 16 that differ from the kit's pass."""

from tests.labs.both_ways import passes

test_a_right_answer_of_another_make_passes = passes("16")
