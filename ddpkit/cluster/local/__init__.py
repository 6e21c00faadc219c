"""Runs ranks on this machine.

run        a run, from its start to its end
request    the function of a run, and the settings of its ranks
launch     starts and kills the ranks' processes
hashing    chooses the runs in which each rank has its own hash seed
typed      passes the launcher's standard input to a script
unsent     the spans of killed ranks, from files that outlive the ranks
kept       stores the operations of all ranks, for the timekeeper
entering   enters the ranks' collectives into the emulated network
devices    simulates the ranks' devices, for the timekeeper
stall      detects, from outside, a run in which no process works
watched    reads, from outside, the clock of a rank that computes
actors     the earliest next post of each thread and callback, and the actors that stand still
timekeeper emulated time: the order of ranks, and the ends of operations
"""
