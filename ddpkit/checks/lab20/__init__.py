"""Lab 20: real sizes of models and machines.

In a "run without values", tensors have shapes but no values.

cases      the exercises: questions, and right values
sizes      sizes of transformers, their FLOPs and their memory, and counts with mistakes
training   a step of FSDP2, run without values, and its peak of memory
rooflines  operations that a host launches, the limit of each, and limits with mistakes
limits     the fewest tokens that hide a communication, by right and wrong formulas
sides      the verdict on an answer of hidden_from: by the formula, and by two runs
both_sides runs without values, with fewer and with more tokens than an answer of hidden_from
profiles   traces with one large performance problem each, and the name of the problem
planning   plans of replicas, stages and slices, with their costs
hints      sentences for wrong answers: model_flops, fits, roof
hints_more sentences for wrong answers: hidden_from, read_profile, choose
"""
