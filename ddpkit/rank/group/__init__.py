"""The process group of a run, and the network that it emulates.

recorded   the group of every cluster: a record of each call around gloo or NCCL
work       what a recorded group gives for a call
arguments  what the arguments of a collective say
nccl       where NCCL differs from gloo
emulated   when the emulated link ends an operation
"""
