"""Collectives as schedules of messages, without time.

schedules    Schedule: sender, receiver and chunk of each message, in order
by_name      schedule: a schedule by name, for each algorithm in ALGORITHMS
all_reduce   the schedules of six all-reduces
collectives  the schedules of the collectives with one root, and of the halves of a ring
executor     execute: a schedule run on numbers, with the chunks of each rank at the end
costs        cost, FORMULAS: the cost of an algorithm in closed form, with its source;
             bus_bandwidth: NCCL tests' busbw, to compare operations and world sizes
"""
