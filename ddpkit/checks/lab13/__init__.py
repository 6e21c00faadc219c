"""Lab 13: the shards of optimizer, gradients and parameters, and the reading of old shards.

cases     the exercises: their inputs and the right results
hints     sentences about mistakes, a table for each exercise
piece_hints  hints about pieces of shards
training  an optimizer in one process: the right results, and the results of mistakes
blocks    blocks of a model, in one process and on ranks: learning, memory, and events
fetching  units that record the start of their gathers, for prefetch
on_ranks  functions that run on each rank
seen      values from traces: sent bytes, operations, memory while a block computes
"""
