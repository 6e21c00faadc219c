"""Reading and writing of traces: the kit's own files, and the files of other tools.

own        the kit's own file of a trace
chakra     Chakra execution traces, for simulators
graph      a rank as a graph of compute and communication
chrome     Chrome JSON, for Perfetto and HolisticTraceAnalysis
kineto     files of torch.profiler, read into events
profiled   the spans of a rank, made from the events of `kineto`
sources    one trace, read from our own file or from torch.profiler's files
disk       reading and writing of JSON files
"""
