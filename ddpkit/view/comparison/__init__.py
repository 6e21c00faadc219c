"""Several runs on one axis of time.

model      the runs, and the differences between them
figure     the static figure
widget     `what_if`: a recorded run above its replay on another network
"""
