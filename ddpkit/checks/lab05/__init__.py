"""Lab 05: flat tensors and views, buckets by torch's rule, and the best size of a bucket.

cases   the exercises
hints   sentences about wrong answers
flat    the inputs and the results of `flatten` and `unflatten`
views   parameters with gradients that are, or are not, views of the buckets
rules   buckets by the right rule, and by wrong rules that people write
caps    the best cap by the right model of the network, and by wrong models that people write
"""
