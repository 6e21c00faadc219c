"""The spans of each rank over time, and the parts of each rank's time.

model          a trace as rows, arrows and sentences
memory         the memory of the rank that held most, over the same time
figure         the static figure of the timeline
memory_figure  the memory, drawn under the timeline
"""
