"""A rank spawns a process that imports this script again, with calls of torch.cuda at its top."""

import multiprocessing as mp
import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
ONE = torch.ones(2, device="cuda")


def add(answers: "mp.Queue[list[float]]") -> None:
    answers.put((ONE + 1).tolist())


if __name__ == "__main__":
    dist.init_process_group("nccl")
    context = mp.get_context("spawn")
    answers: "mp.Queue[list[float]]" = context.Queue()
    process = context.Process(target=add, args=(answers,))
    process.start()
    assert answers.get(timeout=200) == [2, 2]
    process.join()
    dist.all_reduce(ONE)
