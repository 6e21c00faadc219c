"""Lab 12: slices of a layer, strips of an image, parts of a sequence, and the norm of a gradient.

cases     the exercises: their inputs and the right results
hints     sentences about mistakes, a table for each exercise
norm_hints  sentences about mistakes in global_norm
mlps      attentions   strips   norms   right results by one process, and results of mistakes
on_ranks  functions that run an answer on a rank, forward and backward
"""
