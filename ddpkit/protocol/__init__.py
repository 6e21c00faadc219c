"""Data and messages that the launcher and the ranks of a run share.

call         one call into torch.distributed
raised       an exception of a rank
messages     messages between ranks and rank 0 under torchrun
status       the line of code that a rank executes, and the call in which it waits
per_rank     PerRank: an argument that has a different value on every rank
assignment   the settings that the process of a rank gets at its start
ship         pickling of functions for the ranks, and of results for the launcher
reply        the last message of a rank: its result, spans and notes
replica      fingerprints of a model, which should be equal on several ranks
mapped       a file mapped into memory, which other processes read even after its writer's end
blackbox     a rank's calls and status, in a file that outlives the rank
past         the start and end of a rank's calls and compute, in a second mapped file
alike        a job in which only the first ranks run, and the other ranks are copies
not_computed  the mark of a tensor with values that were not computed
emulation    messages between ranks and the timekeeper of an emulated cluster
"""
