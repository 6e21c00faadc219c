"""Lab 05: flat tensors and views, buckets by torch's rule, and the best size of a bucket.

cases   the exercises
hints   sentences about wrong answers
flat    the inputs and the results of `flatten` and `unflatten`
views   parameters with gradients that are, or are not, views of the buckets
rules   buckets by the right rule, and by common wrong rules
caps    the best cap by the right model of the network, and by common wrong models
"""
