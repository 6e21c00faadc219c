"""Lab 20: real sizes.

cases      the exercises: questions, and right values
sizes      sizes of transformers, their FLOPs and their memory, and counts by wrong ideas
training   a step of FSDP2, run without values, and its peak of memory
rooflines  operations that a host launches, their limits, and limits by wrong ideas
limits     the least tokens that hide a communication, by right and wrong formulas
sides      an answer's limit, judged by its number and by runs
both_sides runs without values, with fewer and with more tokens than a limit
profiles   traces with one large trouble each, and their limits
planning   plans of replicas, stages and slices, with their costs
hints      sentences for wrong answers: model_flops, fits, roof
hints_more sentences for wrong answers: hidden_from, read_profile, choose
"""
