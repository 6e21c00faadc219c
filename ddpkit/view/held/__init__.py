"""The bytes that one rank holds over time, a line for each run.

model      levels of memory as steps, the limit, and the end of a run that ran out of memory
figure     the static figure; `view.show.show_held` displays it
"""
