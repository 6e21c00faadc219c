"""The cost and the time of a training, by its number of ranks and its batch.

model      the hours and dollars of each number of ranks and batch
figure     the map
widget     `explore_plan`
"""
