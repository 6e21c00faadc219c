"""Lab 07: torch's DistributedDataParallel, opened up: hooks, groups, uneven inputs, a backend.

cases     the exercises: what is asked, and what is right
power     the cases of PowerSGD on buckets made by hand
in_ddp    a case in torch's own DDP, and the bytes that collectives take
hints     what to say of which mistake in a hook, a table for each
hints_more  the same of the other exercises
buckets   what runs on each rank for hooks: buckets as DDP has them, and torch's DDP itself
low_rank  gradients of a known rank, and what PowerSGD makes of their mean
uneven    batches of different numbers, and what one process makes of them
barriers  visits to a barrier by ranks with a clock of their own (`ddpkit.checks.shared.meeting`)
visits    the right ends of such visits, and what was observed, in order
backend   a backend of c10d's around an answer, on ranks
"""

WITH_THE_HOOK = "a backward with the hook"  # the name of a span
