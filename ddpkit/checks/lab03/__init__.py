"""Lab 03: six all-reduces, and their costs.

cases   the exercises
ways    the six algorithms, and the sentences in which their hints differ
sums    inputs that make each rank's part of a sum visible, and the results of an answer
sent    the traffic of an all-reduce: bytes, messages, and messages that follow each other
rings   the results of common mistakes in a ring
hints   sentences about wrong all-reduces and wrong predictions
"""
