"""Matrices in blocks on ranks, and the bytes that ranks send to multiply such matrices.

model      matrices, products, and the gathers and sums that products need
figure     the static figure; `view.show.show_blocks` displays it
"""
