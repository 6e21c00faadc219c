"""The notebook's side of a run: start the ranks, ship the function, gather, explain, end.

cluster    `Cluster` and `Run`, what the reader sees
local/     ranks on this machine
torchrun/  ranks that torchrun has started
elastic    `torchrun` itself, from a cell
guardian   a process between the two, which leaves nothing behind
monitor    reads the ranks' black boxes: disagreement, deadlock
lines      the lines from which ranks call the collectives that meet
causes     why ranks cannot go on, in what their calls differ
blame      whose fault, of all that is known of a failure
explain    words for what went wrong
disagreement  words for calls of ranks that do not fit
phrases    the parts of sentences that all these words share
interrupts KeyboardInterrupt, held back, and handed on to another thread
stopped    words for a run that was stopped
afterwards/ words about a run that has ended well, and should not have
without_values  facts of a run without values: lines that read values all the same
outcome    what a run left: results, or the error that says why not
output     what the ranks print
devices    where the ranks compute, and so over which backend they talk
cores      how many cores they share
speeds     how fast their emulated machines are
"""

from ddpkit.cluster.cluster import Cluster, Run

__all__ = ["Cluster", "Run"]
