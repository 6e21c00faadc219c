"""Lab 03: six all-reduces, and what they cost.

cases   its exercises
ways    the six, and the sentences in which the hints for them differ
sums    inputs whose sum tells what it lacks, and what an answer made of them
sent    what is sent in an all-reduce: bytes, messages, and how many go in a row
rings   what comes of the usual mistakes in a ring
hints   what to say of wrong all-reduces and of wrong predictions
"""
