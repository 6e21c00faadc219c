"""Parts of the checks of several labs.

mistakes   a wrong idea as a function: an answer with the same numbers gets the idea's sentence
messages   hints about messages that did not come through
hints      sentences about answers of the wrong kind
meeting    ranks with a clock of their own, which come to a store when the check says
store      a store of c10d in which a wait takes the time of these ranks
functions  a function of autograd on a rank, between a forward and a backward
travel     the bytes of a rank's messages, forward and backward
models     models and batches for a DistributedDataParallel
alone      the same models and batches in one process
training   a small training: by an answer on ranks, by one process, and gone wrong
"""
