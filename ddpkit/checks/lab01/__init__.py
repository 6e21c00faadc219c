"""Lab 01: minibatches, the step of SGD, and gradients from pieces.

cases   its exercises
hints   what to say of wrong answers
"""
