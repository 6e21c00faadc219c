"""Lab 05: flat tensors and views, buckets by torch's rule, and the best size of a bucket.

cases   its exercises
hints   what to say of wrong answers
flat    what `flatten` and `unflatten` are given, and what they made of it
views   parameters with gradients, and whether these are views of the buckets
rules   which bucket, by the right rule and by wrong ones that people write
caps    which cap is best, by the right model of the network and by wrong ones
"""
