"""A thread uses a group of gloo while the main thread uses NCCL: in another order on each rank."""

import threading

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
group = dist.new_group(backend="gloo")
turn, sums = [threading.Event(), threading.Event()], []


def beside() -> None:
    turn[0].wait()
    x = torch.ones(4)
    work = dist.all_reduce(x, group=group, async_op=True)
    turn[1].set()
    work.wait()
    sums.append(x.sum().item())


thread = threading.Thread(target=beside)
thread.start()
y = torch.ones(4, device="cuda")
if rank == 0:  # the thread's call first
    turn[0].set()
    turn[1].wait()
dist.all_reduce(y)
turn[0].set()
turn[1].wait()
for _ in range(3):
    dist.all_reduce(y)
sums.append(y.sum().item())
thread.join()
assert sorted(sums) == [8.0, 64.0], sums
on_gpu = torch.ones(4, device="cuda")  # gloo copies the values of a tensor on a GPU
dist.all_reduce(on_gpu, group=group)
assert on_gpu.tolist() == [2.0] * 4
