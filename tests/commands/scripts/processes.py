"""A launcher in a script: a process for each rank, and a process without a rank."""

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 2


def begin(rank: int) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29531"
    dist.init_process_group("gloo", rank=rank, world_size=SIZE)


def work(rank: int, how: object) -> None:
    begin(rank)
    dist.all_reduce(torch.ones(2))
    if rank == 1 and how == "raises":
        raise ValueError("a bad batch")
    if how == "leaves":
        sys.exit(0)
    dist.destroy_process_group()


class Worker(BaseProcess):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def run(self) -> None:
        work(self.rank, "")


def prepare() -> None:
    with open("prepared", "a") as file:
        file.write("x")


if __name__ == "__main__":
    kind, how = sys.argv[1:]
    processes: list[BaseProcess] = []
    other = multiprocessing.get_context("fork").Process(target=prepare)
    other.start()
    other.join()
    if kind == "start_processes":
        mp.start_processes(work, args=(how,), nprocs=SIZE, start_method="fork")
    elif kind == "run":
        processes = [Worker(rank) for rank in range(SIZE)]
    elif kind == "queue":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        processes = [context.Process(target=work, args=(each, queue)) for each in range(SIZE)]
    else:
        context = multiprocessing.get_context(kind)
        processes = [context.Process(target=work, args=(each, how)) for each in range(SIZE)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [each.exitcode for each in processes] == [0] * len(processes)
