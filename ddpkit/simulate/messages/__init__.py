"""Collectives as schedules of messages, without time.

schedules    Schedule: the sends and receives of each rank, in order
by_name      schedule: returns the schedule of an algorithm in ALGORITHMS by its name
all_reduce   the schedules of six all-reduces
collectives  the schedules of the other collectives
executor     execute: runs a schedule on numbers, and returns each rank's vector
costs        cost, FORMULAS: the cost of an algorithm in closed form, with its source;
             bus_bandwidth: the "busbw" of NCCL's tests, to compare operations and world sizes
"""
