"""The square of queries and keys, and the rank that computes each tile.

model      shares of a sequence, their tiles, and the pairs of each rank
figure     the static figure; `view.show.show_attention` displays it
"""
