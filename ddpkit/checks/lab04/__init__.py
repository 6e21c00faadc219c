"""Lab 04: data parallel.

cases      the exercises: the inputs of each answer, and the right results
hints      a table for each exercise: mistakes, and a sentence for each mistake
replicas   a model with every kind of tensor that a broadcast may forget
epochs     the observation of an epoch that an answer splits among the ranks
gradients  modules with gradients that differ by rank, and the averages
sets       a copy of an answer, with sets in a different order on each rank
"""
