"""Right answers to lab 19 pass, also if they differ from the kit's."""

from tests.labs.both_ways import passes

test_a_right_answer_of_another_make_passes = passes("19")
