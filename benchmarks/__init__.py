"""Benchmarks: each module without an underscore is run as `python -m benchmarks.NAME`.

cluster    start, memory, large tensors, recording: see BENCHMARKS.md
link       measured ÷ formula of the emulated link
soak       hundreds of faults in a row, after each of which everything works and nothing is left

A machine's seconds say little on another machine, and less on a busy one. So what is compared is
measured side by side, in turns, and a figure comes with its spread.
"""
