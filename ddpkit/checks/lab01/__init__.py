"""Lab 01: minibatches, the step of SGD, and gradients from micro-batches.

cases   the exercises of the lab
hints   sentences about wrong answers
"""
