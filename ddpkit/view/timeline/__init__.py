"""Who did what, when, and where each rank's time went.

model      a trace as rows, arrows and sentences
memory     what the fullest rank held, under the timeline
figure     the static figure
"""
