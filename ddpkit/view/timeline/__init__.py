"""Who did what, when, and where each rank's time went.

model      a trace as rows, arrows and sentences
figure     the static figure
"""
