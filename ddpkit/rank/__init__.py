"""Inside a rank. Needs torch, numpy and cloudpickle; no Jupyter.

main       the main function of a rank's process: live through the run, then send the result
life       a rank's part in a run: join the group, call the function, pack the result
process    the rank's process: its environment, its output, and its exit
device     the rank's GPU, if it has one, and the tensors that a cell makes there
group/     the process group, through which all communication passes, and the emulated network
emulation/ the emulated machine: its clock, and the user's code's view of it
script/    runs a script that was written for torchrun, as the function of a rank
record/    a rank's record of itself: calls, compute, steps
agent      the thread that reports the line and the wait of the main thread
callers    distinguishes the user's calls from torch's
stores     the stores of torch.distributed, in which ranks wait for each other
rpc        joining and leaving torch's RPC in emulated time
same       compares a model's values across all ranks
stated     gives values to a tensor that a run without values has not computed
modes_on   refuses code that hides operations from dispatch modes
mode       the base of dispatch modes, which load no compiler
compiler   the stand-in for torch's compiler, until something is compiled
side_channels  refuses ways to exchange data past torch.distributed
where      finds the line of the user's code that a thread executes, and the call in this line
report     turns exceptions into plain data
keyboard   refuses input from the keyboard, which a rank does not have
preload    the forkserver's imports, done once for all ranks
"""
