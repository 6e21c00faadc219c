"""A step on 1 to 4,096 ranks.

model      the efficiency over ranks, the batch shared or growing
figure     the static figure
widget     `explore_scaling`
"""
