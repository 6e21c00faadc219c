"""Time: messages on links and programs of ranks, played event by event.

posted      messages and parts of collectives that wait on a network
device      the places of a rank's device: compute, and the engines that copy
queues      Queues: the streams and communicators of a device; an item follows the last of its queue
network     Network: all messages of a cluster, moved in the order of time by the link's rules
program     Program: the work, messages and collectives of each rank, as data, on lanes; and the
            items that a host launches on its device
play        play_program: the engine, which plays any program event by event: Played
timing      time_of: a schedule on links, event by event: a Trace
rounds      ring_ends, butterfly_ends: an all_reduce of thousands of ranks, a round at a time
prices      price_of: the time of an all_reduce, by any algorithm on any links; Price
operations  collective_ns: the time of a collective of torch.distributed
folded      collectives of many equal ranks, of which only the first few are played
claimed     program_ns: the time, on a modelled machine, of a program that ranks report
"""
