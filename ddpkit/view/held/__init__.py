"""The bytes that one rank holds over time, a line for each run.

model      levels of memory as steps, the limit, and the end of a run without room
figure     the static figure; `view.show.show_held` displays it
"""
