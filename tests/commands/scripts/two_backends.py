"""A thread sends over gloo while the main thread sends over NCCL, in a group with both backends.

The thread of each rank begins in another step. With an argument, the ranks disagree.
"""

import sys
import threading

import torch
import torch.distributed as dist

dist.init_process_group("cpu:gloo,cuda:nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
wrong = sys.argv[1] if sys.argv[1:] else ""


def save() -> None:
    for number in range(3):
        size = 4 if wrong == "mismatch" and rank else 3
        dist.all_reduce(torch.ones(size))
        gathered = [None, None]
        dist.all_gather_object(gathered, number)
        assert gathered == [number, number]
    total = moved.sum().cpu()
    dist.all_reduce(total)  # on the host: a result of the GPU, copied to the host
    assert total == 20


moved = torch.ones(10, device="cuda")
saver = threading.Thread(target=save)
for step in range(4):
    if step == rank:
        saver.start()
        saver.join(0.3)
    result = (moved * 2).sum()  # on the GPU, like its operands
    dist.all_reduce(result if rank else torch.full((), 20.0, device="cuda"))
saver.join()
if wrong == "other queue":
    dist.all_reduce(torch.ones(5, device="cuda" if rank else "cpu"))
