"""Inside a rank. Needs torch, numpy and cloudpickle; no Jupyter.

main       the life of a rank: join the group, call the function, reply
group      the process group around gloo, through which all communication passes
record     calls and spans written down, and the agent that says where the rank is
compute    forward, backward, optimizer: torch's hooks
blackbox   the file that outlives the rank
report     exceptions as plain data
ship       functions and results as bytes
preload    what the forkserver imports ahead of all ranks
"""
