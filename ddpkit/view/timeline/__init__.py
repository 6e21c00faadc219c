"""Who did what, when, and where each rank's time went.

model          a trace as rows, arrows and sentences
memory         what the fullest rank held, over the same time
figure         the static figure
memory_figure  the memory, under it
"""
