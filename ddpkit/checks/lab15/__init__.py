"""Lab 15: the cases of the capstone.

cases   the exercises: the bottleneck of a trace, and the fast training
traces  steps with one bottleneck: made, simulated, and recorded
hints   hints for both exercises
"""
