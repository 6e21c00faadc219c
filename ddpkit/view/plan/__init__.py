"""Ranks and batches: the cost and the time of a training.

model      the hours and dollars of each number of ranks and batch
figure     the map
widget     `explore_plan`
"""
