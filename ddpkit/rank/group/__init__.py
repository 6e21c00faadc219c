"""The process group of a run, and the network that it emulates.

recorded   the group of every cluster: a record of each call around gloo or NCCL
direct     starts operations on gloo's and NCCL's groups
methods    the methods that c10d calls on a group, and the refused methods
work       the Work that a recorded group returns for a call
arguments  facts in the arguments of a collective
layout     refuses tensors that a backend would move wrongly
shared_memory  refuses outputs that share memory with each other or with an input
in_flight  tensors owned by the network between a post and its wait, for checks
changed    finds tensors that the code changes before the wait, by their version counters
hidden     refuses groups that code makes without ddpkit, for checks
making     marks the time in which ddpkit itself makes a backend
staged     messages between ranks that share a GPU, which are copied through the host
uncarried  calls on large tensors without values, for which gloo moves only a few elements
absent     groups with absent ranks; each absent rank is a copy of a running rank
believed   calls that NCCL accepts and gloo refuses, for scripts that are told that they have NCCL
placed     marks tensors on a script's GPU, and serves groups with two backends
following  marks the results of operations on a script's GPU tensors
of_host    calls with tensors of the host, on a rank with a device
nccl       differences between NCCL and gloo
emulated   ends operations when the emulated network ends them
operation  an operation of an emulated group, from its post to its end
ended      a finished collective, after gloo has released its tensors
futures    futures of an emulated group's operations, and their callbacks
backend    registers ddpkit's backends with torch.distributed
asked      groups that report the backend that the user has requested
"""
