"""The bytes of parameters, gradients and optimizer state on each rank, by stages of ZeRO.

model      the bytes of each stage, by kind
figure     a bar for each stage
widget     `explore_state`
"""
