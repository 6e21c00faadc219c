"""Ranks that torchrun has started, on one host or several.

run          a run in place, on the ranks of the job
attempt      after a restart, a part of the store unused by the previous attempt
job          the job: the ranks, and the exchanges between them
messenger    each rank sends rank 0 news of the rank's run
watcher      rank 0 hears all ranks, and ends a failed job
connections  the connections of all ranks to rank 0
hosts        the ranks of each host, and the network interface for gloo
clocks       moves the times of all spans to rank 0's clock
"""
