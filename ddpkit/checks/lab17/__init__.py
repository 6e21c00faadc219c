"""Lab 17: a mixture of experts: routing, the way of rows to experts and back, balance, homes.

cases      the exercises: the questions and the right answers
hints      balance_hints   home_hints   hints by exercise
routing    chosen experts and their weights, choices within a capacity; wrong ideas of both
travel     choices of tokens, the rows that travel for them, and the reading of tickets
balance    the balance loss, the bias and gradients in one process; wrong ideas of them
homes      copies of experts on ranks, and wrong ways to place them
on_ranks   the functions that run answers on each rank, forward and backward
"""
