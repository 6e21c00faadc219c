"""Lab 15: cases.

traces  steps with one bottleneck: made, simulated, and recorded
hints   hints for both exercises
"""
