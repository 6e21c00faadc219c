"""Parts of the checks that several labs share.

mistakes   common mistakes as functions, and hints for answers that return the same numbers
messages   hints about messages that were not delivered
hints      sentences about answers of the wrong type
meeting    ranks that visit a store at planned times, on a simulated clock
store      a c10d store on this simulated clock: a wait takes no real time
seeds      torch's global random numbers, which an answer must leave alone
functions  a run of an autograd function on a rank, with a forward and a backward
travel     the bytes of a rank's messages, forward and backward
models     models and batches for a DistributedDataParallel
alone      right gradients and parameters of these models, computed by one process
training   a small training: by an answer on ranks, by one process, and with a common mistake
"""
