"""Lab 16: attention over a sequence that is divided among the ranks.

cases     the exercises: questions, and right values
rings     cases of a ring of keys, and of gradients that follow the keys
losses    losses of tokens, and masks of the tokens that count
ways      the bytes sent by three ways to divide a sequence, and wrong counts of them
twin      a whole sequence in one process: shares, outputs, gradients
on_ranks  functions that run answers on a rank, with recorded calls of `attend` and `back`
hints     sentences for wrong answers in one process: merge, zigzag, own_tokens
hints_on_ranks  sentences for wrong answers on ranks
head_hints      sentences for wrong answers that exchange heads for tokens
"""
