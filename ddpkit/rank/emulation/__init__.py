"""A rank's emulated machine: its clock, and what the user's code sees of it.

clock    the clocks of a rank's threads: CPU time, and jumps over what is waited for
counted  compute that is counted, operation by operation, by a modelled machine
desk     the rank's side of the timekeeper: posts, asks, gets answers
machine  the machine of a run: made at its start, shown to the user's code, and taken away
memory   what is alive on a modelled machine, and what for
seen     what `time` and asyncio tell the user's code
busy     busy: a stretch of work whose time is stated
"""
