"""Lab 14: replicas, stages and slices together.

cases     the exercises: their inputs and the right results
groups    the groups of a mesh, and wrong groups
seconds   the seconds of a step: questions about one term at a time, and mistakes in each term
storage   the bytes of a plan, and wrong counts of bytes
planners  the cheapest plan, and planners that miss it
"""
