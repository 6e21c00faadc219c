"""Lab 11: a pipeline of ranks, with one layer on each rank.

cases     the exercises: their inputs and the right results
hints     sentences about mistakes, a table for each exercise
replay    a replay of all stages' plans: the first flaw, or the time of a step
on_ranks  functions that run on each rank, and their observations
alone     the results of one process with the same layers
"""
