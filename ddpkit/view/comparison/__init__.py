"""Several runs on one axis of time.

model      the runs, and what changed between them
figure     the static figure
widget     `what_if`: a recorded run, and below it its replay on another network
"""
