"""A rank's emulated machine: its clock, and the user's code's view of the machine.

allocator  torch's caching allocator of CUDA memory: segments, blocks, a snapshot
backward  backward passes of the main thread, with the waits of DDP's reducer in C++
capability  operations for which a modelled GPU is too old
carried  tensors that gloo may still carry while the host of a device goes on
clock    the clocks of a rank's threads: CPU time, and jumps over waits
counted  counts, for each operation, the time that a modelled machine would need
desk     the rank's side of the timekeeper: posts, asks, gets answers
device   a rank's device: the host launches, the timekeeper simulates the launches
device_rows  rows of a device in a trace: waits of the host, side streams
held     live storages, and the device's and the host's memory that they fill
machine  the emulated machine of a run, which replaces functions of `time` and torch
meter    the cost of each operation on a modelled machine
memory   the live storages of a modelled machine, and their kinds, such as gradients
places   two memories, the device's and the host's, and copies between the two
seen     the time that `time` and asyncio show to the user's code
uncomputed  ranks without values: large operations are counted, and not computed
shapes   the shapes of an operation's results, found with torch's fake tensors
shapes_only  copies and files of tensors without values
sharded_lists  operations on lists of DTensors, in time that grows with the length
streams  streams and events of a device, in the place of torch's
timed    finds lines of a program that measure a time without waiting for the device
busy     busy: a stretch of work with a stated duration
"""
