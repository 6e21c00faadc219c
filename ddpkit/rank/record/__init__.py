"""What a rank writes down about itself.

recorder      the `Recorder` of a run: calls, compute, steps
marks         blocks that a rank marks: `span` and `step`
call          one call into torch.distributed, from its start to its end
compute       forward, backward and optimizer, by torch's hooks
backward      what happened in one backward
loose         operations outside modules, where compute is counted
log           what ended, as the trace will have it
clock         moments, on the host and on a GPU
threads       since when a call of a thread of the user's own could have been made
models        the DDP model to which a gradient belongs
replicas      fingerprints of models that should be equal on several ranks
thread_state  lets gloo's threads call Python at half the price
"""
