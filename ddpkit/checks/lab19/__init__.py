"""Lab 19: training over slow links: the exercises.

cases       the exercises: questions and right values
plans       steps between exchanges, and the steps at which fragments are sent
outer       rounds of an outer optimizer in one process, right and with mistakes
exchanges   means of numbers sent as bytes, and means weighted by steps, right and with mistakes
rosters     the right lists of ranks for a quorum
on_ranks    the functions that run on each rank
hints       the hints of steps_between, Outer and stream
hints_more  the hints of mean_by_bytes, mean_of, quorum and catch_up
"""
