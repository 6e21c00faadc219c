"""Ranks that torchrun has started, on one host or several.

run          a run in place, on ranks that are there already
attempt      after a restart, a part of the store that the attempt before has not used
job          the job: its ranks, and what they tell each other
messenger    each rank tells rank 0 what it does
watcher      rank 0 hears all ranks, and ends the job that has failed
connections  of all ranks to rank 0
hosts        which ranks sit together, and which interface gloo takes
clocks       all spans by rank 0's clock
"""
