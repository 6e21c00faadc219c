"""What each stage of a pipeline works on, and when.

model      spans named F0, B0, W0 as boxes, bubbles and what is held
figure     the static figure
widget     `explore_pipeline`
"""
