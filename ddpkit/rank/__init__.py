"""Inside a rank. Needs torch, numpy and cloudpickle; no Jupyter.

main       the life of a rank: join the group, call the function, reply
group      the process group around gloo, through which all communication passes
arguments  what c10d's methods are given
paced      the same group on an emulated link (noticeboard: times that ranks leave for each other)
record     calls, compute and steps written down (call: one of them, log: all of them)
agent      the thread that says where the rank is and what it waits for (where: the reader's line)
compute    forward, backward, optimizer: torch's hooks
blackbox   the file that outlives the rank
report     exceptions as plain data
ship       functions and results as bytes
preload    what the forkserver imports ahead of all ranks
"""
