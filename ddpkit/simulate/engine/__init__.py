"""The times of messages on links and of programs of ranks, simulated event by event.

posted      messages and parts of collectives that ranks have posted on a network
device      the places of a rank's device: compute, and the engines that copy
queues      Queues: the streams and communicators of a device, and the last item of each
network     Network: all messages of a cluster, moved in the order of time by the rules of links
program     Program: the work, messages and collectives of each rank, as data, on lanes; and the
            items that a host launches on its device
play        play_program: the engine, which plays any program event by event; its result is Played
timing      time_of: the Trace of a schedule on links, event by event
rounds      ring_ends, butterfly_ends: an all_reduce of thousands of ranks, a round at a time
prices      price_of: the time of an all_reduce, by any algorithm on any links; Price
operations  collective_ns: the time of a collective of torch.distributed
folded      collectives of many equal ranks, with steps for the first few ranks only
claimed     program_ns: the time that the work reported by ranks takes on a modelled machine
"""
