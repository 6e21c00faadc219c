"""The notebook's side of a run: start the ranks, gather the results, explain errors, end all.

cluster    `Cluster` and `Run`, the public classes
local/     ranks on this machine
torchrun/  ranks that torchrun has started
elastic    `torchrun` itself, from a cell
guardian   a process between notebook and torchrun, which ends every process of torchrun
monitor    reads the ranks' black boxes, and detects disagreement and deadlock
lines      the lines of code from which the ranks call the same collective
causes     the causes of deadlocks and mismatches, found in the ranks' calls
blame      the choice of the rank at fault
explain    texts of the errors of a run
disagreement  texts about calls of different ranks that do not match
phrases    parts of sentences that all these texts share
interrupts holds KeyboardInterrupt back, or raises it in another thread
stopped    texts about a run that was stopped
afterwards/ texts about runs that ended without an error, but may have wrong results
without_values  facts of a run without values: the lines of code that still read values
outcome    the results of a run, or its error
output     the ranks' printed lines
devices    the ranks' device, and the backend for this device
cores      the number of cores that the ranks share
speeds     the speeds of the ranks' emulated machines
"""

from ddpkit.cluster.cluster import Cluster, Run

__all__ = ["Cluster", "Run"]
