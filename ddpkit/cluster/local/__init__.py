"""Ranks on this machine.

run        a run, from its start to its end
request    the function of a run, and the settings of its ranks
launch     processes: start, kill
hashing    the choice of runs in which each rank has its own hash seed
typed      a script's standard input
unsent     the spans of killed ranks, from files that outlive the ranks
kept       the operations of all ranks, as the timekeeper keeps them
entering   collectives of ranks, entered into the emulated network
devices    the ranks' devices, as the timekeeper plays them
stall      notices a run in which no process works, from outside
watched    the clock of a rank that computes, seen from outside
actors     the earliest next post of each thread and callback, and the actors that stand still
timekeeper emulated time: the order of ranks, and the ends of operations
"""
