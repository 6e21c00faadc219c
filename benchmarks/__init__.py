"""Benchmarks: each module without an underscore prints ratios that were measured in one run.

python -m benchmarks.cluster     start, memory, large tensors, recording: see BENCHMARKS.md

A machine's seconds say little on another machine, and less on a busy one. So what is compared is
measured side by side, in turns, and a figure comes with its spread.
"""
