"""Ranks on this machine.

run        a run, from its start to its end
request    the function of a run, and the settings of its ranks
launch     processes: start, kill
hashing    which ranks need a hash seed of their own
typed      a script's standard input
unsent     the spans of ranks that were killed, from the files that outlive them
kept       the operations of all ranks, as the timekeeper keeps them
entering   collectives of ranks, entered into the emulated network
devices    the ranks' devices, as the timekeeper plays them
stall      whether any process of a run works, seen from outside
watched    the clock of a rank that computes, seen from outside
actors     who can still post operations, and from which time on; who stands still
timekeeper emulated time: who comes first, and when operations are done
"""
