"""A rank's emulated machine: its clock, and what the user's code sees of it.

backward backwards of the main thread, in which DDP's reducer waits in C++
capability  operations for which a modelled GPU is too old
carried  tensors that gloo may still carry while the host of a device goes on
clock    the clocks of a rank's threads: CPU time, and jumps over what is waited for
counted  compute that is counted, operation by operation, by a modelled machine
desk     the rank's side of the timekeeper: posts, asks, gets answers
device   a rank's device: the host launches, the timekeeper plays the launches
device_rows  rows of a device in a trace: waits of the host, side streams
held     live storages, and the memories that they fill
machine  the machine of a run: made at its start, shown to the user's code, and taken away
meter    the cost of each operation on a modelled machine
memory   what is alive on a modelled machine, and what for
places   two memories: the device's and the host's, and copies between them
seen     what `time` and asyncio tell the user's code
uncomputed  carries out operations without values: the rules of ranks without values
shapes   the shapes of an operation's results, as torch's fake tensors tell them
shapes_only  copies and files of tensors without values
streams  streams and events of a device, in the place of torch's
timed    lines of a program that take a time without a wait for the device
busy     busy: a stretch of work whose time is stated
"""
