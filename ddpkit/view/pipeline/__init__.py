"""The micro-batch that each stage of a pipeline works on, over time.

model      spans named F0, B0, W0 as boxes, bubbles and the activations held
figure     the static figure
widget     `explore_pipeline`
"""
