"""Ranks on this machine.

run        a run, from its start to its end
launch     processes: start, kill
timekeeper emulated time: who comes first, and when operations are done
"""
