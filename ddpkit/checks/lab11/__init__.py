"""Lab 11: a pipeline of ranks, each of which has a layer.

cases     the exercises: what is asked, and what is right
hints     what to say of which mistake, a table for each exercise
replay    plans of all stages, carried out: what is wrong with them, or how long they take
on_ranks  what runs on each rank, and what of it is observed
alone     what one process makes of the same layers
"""
