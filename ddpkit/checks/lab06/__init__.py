"""Lab 06: averages that overlap with backward, and a DistributedDataParallel built from them.

cases     the exercises: their inputs and the right results
hints     sentences about mistakes, a table for each exercise
reducer   backwards played by hand to a Reducer, with averages that only take notes
graphs    models for unused_parameters
wrapped   the cases of DistributedDataParallel
on_ranks  functions that run on each rank: an answer's work, beside torch's
traces    the all-reduces in a trace
"""
