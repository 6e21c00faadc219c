"""Lab 04: data parallel.

cases      the exercises: the inputs of each answer, and the right results
hints      a table for each exercise: mistakes, and a sentence for each mistake
replicas   a model with every kind of tensor that a broadcast may forget
epochs     an epoch, split for every rank
gradients  modules with gradients that differ by rank, and the averages
sets       an answer with sets that have a different order on each rank
"""
