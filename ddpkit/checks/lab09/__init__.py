"""Lab 09: a cost model of a training step, and decisions by the model.

cases     the exercises: their inputs and the right results
steps     seconds of a step: by the simulator, and by wrong models of overlap
hints     sentences about mistakes, for most exercises
fits      coefficients by least squares, and wrong fits
choices   the next cap to measure, and the number of servers: right and wrong
batches   the noise scale of gradients, and Adasum's sum of two gradients
money     expected hours on servers that can be revoked, and the cheapest plan
"""
