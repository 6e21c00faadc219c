"""Which rank holds which block of a matrix, and what products of such matrices make travel.

model      matrices, products and what must be gathered or summed
figure     the static figure; `view.show.show_blocks` displays it
"""
