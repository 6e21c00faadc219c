"""Lab 06: averages that overlap with backward, and a DistributedDataParallel built from them.

cases     the exercises: their inputs and the right results
hints     sentences about mistakes, a table for each exercise
reducer   imitated backwards for a Reducer without ranks; stand-ins for averages record events
graphs    models for unused_parameters
wrapped   the cases of DistributedDataParallel
on_ranks  functions on each rank, which run an answer and torch's own class
traces    the all-reduces in a trace
"""
