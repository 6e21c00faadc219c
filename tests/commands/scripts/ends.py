"""A script that ends in the way named by its argument."""

import os
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist


class Gone:
    """The class of an object that a proxy outlives."""


kept = []
how, rank = sys.argv[1], int(os.environ["RANK"])


def end():
    if how == "exits with 3" and rank == 1:
        sys.exit(3)
    if how == "exits with words":
        sys.exit("there is no data")
    if how == "leaves with 7" and rank == 0:
        os._exit(7)
    if how == "raises" and rank == 1:
        raise ValueError("a bad </script> batch")
    if how == "deadlock":
        dist.recv(torch.ones(3), 1 - rank)
    if how == "mismatch":
        dist.all_reduce(torch.ones(3 + rank))
    if how == "is killed" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exits with 0":
        dist.monitored_barrier(timeout=timedelta(seconds=30))
        kept.append(weakref.proxy(Gone()))
        sys.exit(0)
    if how == "leaves a pool open":
        kept.append(pool := ThreadPoolExecutor(1))
        pool.submit(dist.barrier)
    if how == "sleeps":
        agent = next(each for each in threading.enumerate() if each.name == "ddpkit-agent")
        seen = agent._beats
        while agent._beats < seen + 2:  # at the second new beat, the first is on the disk
            time.sleep(0.05)
        print("asleep", flush=True)
        time.sleep(100)


if how != "never joins" and not (how == "one joins" and rank):
    dist.init_process_group("gloo")
end()
print("done", rank)
