"""Parts of the checks of several labs.

mistakes   common mistakes as functions: an answer with a function's results gets its hint
messages   hints about messages that were not delivered
hints      sentences about answers of the wrong kind
meeting    ranks on an invented clock, which visit a store at planned times
store      a c10d store on this invented clock: a wait takes no real time
functions  an autograd function on a rank, with a forward and a backward
travel     the bytes of a rank's messages, forward and backward
models     models and batches for a DistributedDataParallel
alone      the same models and batches in one process
training   a small training: by an answer on ranks, by one process, and with a common mistake
"""
