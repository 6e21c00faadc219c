"""Ranks and batches: what a training costs, and how long it takes.

model      the hours and dollars of each number of ranks and batch
figure     the map
widget     `explore_plan`
"""
