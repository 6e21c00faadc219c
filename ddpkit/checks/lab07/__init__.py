"""Lab 07: torch's DistributedDataParallel, opened up: hooks, groups, uneven inputs, a backend.

cases     the exercises: their inputs and the right results
power     the cases of PowerSGD on buckets made by the check
in_ddp    a case in torch's own DDP, and the bytes that a hook passes to torch.distributed
hints     sentences about mistakes in hooks and groups, a table for each exercise
hints_more  sentences about mistakes in trainings, barriers and backends
buckets   functions that run on ranks: buckets for hooks, and torch's DDP
low_rank  gradients of a known rank, and the right results of PowerSGD
uneven    different numbers of batches by rank, and the training of one process
barriers  arrivals of ranks at a barrier, on a simulated clock (`ddpkit.checks.shared.meeting`)
visits    the right outcome of each visit to a barrier, and the sorting of observed outcomes
backend   a c10d backend that calls an answer, for checks on ranks
"""

WITH_THE_HOOK = "a backward with the hook"  # name of a span
