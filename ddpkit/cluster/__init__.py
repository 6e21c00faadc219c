"""The notebook's side: start the ranks, ship the function, gather, explain, stop.

cluster    `Cluster` and `Run`, what the reader sees
local      a run on this machine, from its start to its end
torchrun   the same on ranks that torchrun started
launch     processes: start, kill
monitor    reads the ranks' black boxes: disagreement, deadlock
explain    words for what went wrong
cores      how many cores they share
outcome    results, or the error that says why not
output     what the ranks print
"""

from ddpkit.cluster.cluster import Cluster, Run

__all__ = ["Cluster", "Run"]
