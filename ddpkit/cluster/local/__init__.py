"""Ranks on this machine.

run        a run, from its start to its end
launch     processes: start, kill
"""
