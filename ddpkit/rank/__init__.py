"""Inside a rank. Needs torch, numpy and cloudpickle; no Jupyter.

main       the main function of a rank's process: a life, then a reply
life       a rank's part in a run: join the group, call the function, pack the result
process    its process: environment, output, and end
device     its GPU, if it has one, and the tensors that a cell makes there
group/     the process group, through which all communication passes, and the emulated network
emulation/ the emulated machine: its clock, and what the user's code sees of it
script/    a script for torchrun, as the function that a rank calls
record/    what a rank writes down about itself: calls, compute, steps
agent      the thread that says where the rank is and what it waits for
callers    who calls: the user's code, or torch
stores     the stores of torch.distributed, in which ranks wait for each other
rpc        joining and leaving torch's RPC, where time is emulated
same       compares a model on all ranks
stated     values of a tensor that a run without values does not compute
modes_on   refuses code that hides operations from dispatch modes
mode       the base of dispatch modes, which load no compiler
compiler   the stand-in for torch's compiler, until something is compiled
side_channels  what leads from rank to rank past torch.distributed
where      where a thread is: in which line of the reader's, and in which call there
report     exceptions as plain data
keyboard   what asks the keyboard is told that there is none
preload    what the forkserver imports ahead of all ranks
"""
