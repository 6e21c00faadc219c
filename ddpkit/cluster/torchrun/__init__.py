"""Runs on ranks that torchrun has started, on one host or several.

run          a run in place, on the ranks of the job
attempt      gives each attempt of a job a new part of the store, after a restart
job          the job: its ranks, and the exchanges of data between the ranks
messenger    sends reports about a rank's run to rank 0
watcher      receives the reports of all ranks on rank 0, and ends a failed job
connections  the connections of all ranks to rank 0
hosts        the ranks of each host, and the network interface for gloo
clocks       moves the times of all spans to rank 0's clock
"""
