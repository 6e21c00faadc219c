"""The exposed communication's share of a step by tokens per rank, a line for each network.

model      the lines, and the tokens from which the exposed share no longer falls
figure     the static figure; `view.show.show_limits` displays it
"""
