"""The efficiency of a step on 1 to 4,096 ranks.

model      the efficiency over ranks, for a shared batch and for a growing batch
figure     the static figure
widget     `explore_scaling`
"""
