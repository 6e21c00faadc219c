"""Lab 15: the cases of the capstone.

traces  steps with one bottleneck: made, simulated, and recorded
hints   hints for both exercises
"""
