"""The notebook's side of a run: start the ranks, gather the results, explain errors, end all.

cluster    `Cluster` and `Run`, the public classes
local/     ranks on this machine
torchrun/  ranks that torchrun has started
elastic    `torchrun` itself, from a cell
guardian   a process between notebook and torchrun, which ends every process of torchrun
monitor    reads the ranks' black boxes, and notices disagreement and deadlock
lines      the lines of code from which the ranks call the same collective
causes     the causes of deadlocks and mismatches, found in the ranks' calls
blame      the choice of the rank at fault
explain    texts of the errors of a run
disagreement  texts for calls of ranks that do not fit
phrases    parts of sentences that all these texts share
interrupts KeyboardInterrupt, held back, and handed on to another thread
stopped    texts about a run that was stopped
afterwards/ texts about a run that ended without an error, with results in doubt
without_values  facts of a run without values: the lines that read values nevertheless
outcome    the results of a run, or its error
output     the ranks' printed lines
devices    the ranks' device, and the backend that follows from it
cores      the number of cores that the ranks share
speeds     the speeds of the ranks' emulated machines
"""

from ddpkit.cluster.cluster import Cluster, Run

__all__ = ["Cluster", "Run"]
