"""The micro-batch that each stage of a pipeline works on, over time.

model      the spans F0, B0, W0, … as boxes; bubbles; micro-batches with kept activations
figure     the static figure
widget     `explore_pipeline`
"""
