"""Lab 04: data parallel.

cases      what is put to each answer, and what a right one makes of it
hints      a table for each exercise: mistakes, and what to say of them
replicas   a model with all that a broadcast may forget
epochs     an epoch, split for every rank
gradients  modules whose gradients differ by rank, and their averages
sets       an answer whose sets have another order on each rank
"""
