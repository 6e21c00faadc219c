"""Lab 13: what each rank keeps of an optimizer, of gradients and of parameters, and what it reads.

cases     the exercises: what is asked, and what is right
hints     what to say of which mistake, a table for each exercise
piece_hints  hints for pieces of shards
training  an optimizer's twin in one process: parameters, gradients, what comes of them
blocks    blocks of a model, whole and on ranks: as they learn, what is there of them, and when
fetching  units that note when they begin to gather, for those who fetch ahead
on_ranks  what runs on each rank
seen      what traces tell: bytes that are sent, operations, memory while a block computes
"""
