"""The time of each step on each rank, and the time that the rank waited.

model      steps and ranks as a table of times
figure     the static figure; `view.show.heat_map` displays it
"""
