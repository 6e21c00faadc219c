"""Records a rank's calls, compute and steps.

recorder      the `Recorder` of a run: calls, compute, steps
marks         blocks that a rank marks: `span` and `step`
call          one call into torch.distributed, from its start to its end
compute       forward, backward and optimizer, by torch's hooks
backward      the events of one backward pass
loose         operations outside modules, where compute is counted
log           finished calls and stretches, in the form of the trace
clock         moments in time, on the host and on a GPU
threads       the earliest time at which a call of a user's thread could have been made
models        the DDP model to which a gradient belongs
replicas      fingerprints of models that should be equal on several ranks
thread_state  makes calls of Python by gloo's threads half as expensive
"""
