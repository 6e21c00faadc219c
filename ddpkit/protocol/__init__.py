"""Data that both ends of a run share: the launcher's end and the rank's.

call         one call into torch.distributed
raised       an exception of a rank
messages     messages between ranks and rank 0 under torchrun
status       the present line of a rank, and the call in which it waits
per_rank     an argument with an item for every rank
assignment   the settings that the process of a rank gets at its start
ship         functions to the ranks, results back
reply        the last message of a rank: its result, spans and notes
replica      fingerprints of a model that should be equal on several ranks
mapped       a file in memory that outlives its writer
blackbox     a rank's calls and status, in a file that outlives the rank
past         the begin and end of a rank's calls and compute, in a second file that outlives it
alike        a job in which only some ranks run, and the others are copies
not_computed  the mark of a tensor without values
emulation    messages between ranks and the timekeeper of an emulated cluster
"""
