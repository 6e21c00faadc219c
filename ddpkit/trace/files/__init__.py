"""Traces on disk, and the files of other tools.

own        the kit's own file of a trace
chakra     Chakra execution traces, for simulators
graph      a rank as a graph of compute and communication
chrome     Chrome JSON, for Perfetto and HolisticTraceAnalysis
kineto     files of torch.profiler, read into events
profiled   these events as the spans of a rank
sources    files of either kind become one trace
disk       JSON files, read and written whole
"""
