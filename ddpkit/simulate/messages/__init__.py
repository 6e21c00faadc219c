"""Collectives as schedules of messages, without time.

schedules    Schedule: the sends and receives of each rank, in order
by_name      schedule: a schedule by name, for each algorithm in ALGORITHMS
all_reduce   the schedules of six all-reduces
collectives  the schedules of the collectives with one root, and of the halves of a ring
executor     execute: runs a schedule on numbers, and returns each rank's vector
costs        cost, FORMULAS: the cost of an algorithm in closed form, with its source;
             bus_bandwidth: NCCL tests' busbw, to compare operations and world sizes
"""
