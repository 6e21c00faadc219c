"""Lab 17: a mixture of experts: routing, rows sent to experts and back, balance, placement.

cases      the exercises: the questions and the right answers
hints      balance_hints   home_hints   hints by exercise
routing    chosen experts and their weights, choices within a capacity; common mistakes in both
travel     choices of tokens, the rows that are sent for them, and the reading of tickets
balance    the balance loss, the bias and gradients in one process; mistakes in them
homes      copies of experts on ranks, and wrong ways to place them
on_ranks   the functions that run answers on each rank, forward and backward
"""
