"""Lab 09: a cost model of a training step, and what it is used for.

cases     the exercises: what is asked, and what is right
steps     how long a step takes: by the simulator, and by wrong ideas of overlap
fits      coefficients by least squares, and fits that are wrong
choices   which cap to measure next, and how many servers: right and wrong
batches   the noise of gradients, and their sum by Adasum
money     hours on servers that are revoked, and the cheapest plan
"""
