"""Lab 12: slices of a layer, strips of an image, parts of a sequence, and the norm of it all.

cases     the exercises: what is asked, and what is right
hints     what to say of which mistake, a table for each exercise
mlps      attentions   strips   norms   a twin in one process for each, and what mistakes give
on_ranks  what runs on each rank: answers put between a forward and a backward
"""
