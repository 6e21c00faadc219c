"""The exposed share of a step against the tokens of a rank, a line for each network.

model      the lines, and the tokens from which the exposed share no longer falls
figure     the static figure; `view.show.show_limits` displays it
"""
