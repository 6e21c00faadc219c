"""Parts of the checks of several labs.

mistakes   a wrong idea as a function: an answer with the same numbers gets the idea's sentence
messages   hints about messages that were not delivered
hints      sentences about answers of the wrong kind
meeting    ranks with an invented clock that visit a store at planned times
store      a c10d store in which waiting takes the invented time of these ranks
functions  an autograd function on a rank, with a forward and a backward
travel     the bytes of a rank's messages, forward and backward
models     models and batches for a DistributedDataParallel
alone      the same models and batches in one process
training   a small training: by an answer on ranks, by one process, and with a usual mistake
"""
