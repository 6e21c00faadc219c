"""What both ends of a run share: the launcher's and the rank's.

call         one call into torch.distributed
raised       an exception of a rank
messages     what ranks and rank 0 tell each other under torchrun
status       where a rank is, and what it waits for
per_rank     an argument of which every rank gets its own item
assignment   what the process of a rank is given when it starts
ship         functions to the ranks, results back
reply        what a rank has to say in the end
replica      fingerprints of a model that should be equal on several ranks
mapped       a file in memory that outlives its writer
blackbox     a rank's calls and status, in a file that outlives it
past         when its calls and its compute began and ended, in another such file
alike        the running ranks of many, and their copies
not_computed  the mark of a tensor without values
emulation    what ranks and the timekeeper of an emulated cluster tell each other
"""
