"""Lab 18: memory of activations, and low precision between ranks.

cases     the exercises: questions, and right values
keeping   modules that keep tensors for their backward, and wrong counts of the bytes
plans     times and memory of plans, the best plan, and the plans of common mistakes
low       right results in low precision, and the results of common mistakes
on_ranks  functions that run answers on a rank
policies  a checkpoint policy, called for one operation after the other
hints     sentences for wrong answers in one process: kept, memory_plan
hints_on_ranks  sentences for wrong answers on ranks: Again, worth_keeping
low_hints       sentences for wrong answers in low precision
"""
