"""The exposed share of a step by the tokens of a rank, a line for each network.

model      the lines, and the tokens from which nothing more becomes hidden
figure     the static figure; `view.show.show_limits` displays it
"""
