"""Lab 18: memory of activations, and low precision between ranks.

cases     the exercises: questions, and right values
keeping   modules that keep tensors for their backward, and counts of bytes by wrong ideas
plans     times and memory of plans, the best plan, and plans by wrong ideas
low       right results in low precision, and results by wrong ideas
on_ranks  answers at work on a rank
policies  a policy that is asked about one operation after the other
hints     sentences for wrong answers in one process: kept, memory_plan
hints_on_ranks  sentences for wrong answers on ranks: Again, worth_keeping
low_hints       sentences for wrong answers in low precision
"""
