"""Lab 19: training over slow links: the exercises.

cases       the exercises: questions and right values
plans       steps between exchanges, and the steps at which fragments travel
outer       rounds of an outer optimizer in one process, and of wrong ones
exchanges   means by bytes and means by steps in one process, and wrong ones
rosters     the right lists of a quorum
on_ranks    the functions that run on each rank
hints       the hints, a table for each exercise
hints_more  the hints of the other exercises
"""
