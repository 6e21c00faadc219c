"""How long each step of each rank took, and how long it waited.

model      steps and ranks as a table of times
figure     the static figure; `view.show.heat_map` displays it
"""
