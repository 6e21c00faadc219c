"""A training script for a machine with GPUs, with the usual calls of torch.cuda."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
if not torch.cuda.is_available():
    sys.exit("this needs a GPU")
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
dist.init_process_group("nccl", device_id=device)
assert torch.cuda.current_device() == local_rank < torch.cuda.device_count()
torch.manual_seed(0)
torch.cuda.manual_seed_all(dist.get_rank())

model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
ddp = DDP(model, device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(64, 32), torch.randint(0, 10, (64,)))
loader = DataLoader(
    data, batch_size=16, pin_memory=True, num_workers=2, sampler=DistributedSampler(data)
)
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
with torch.cuda.stream(torch.cuda.Stream()):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(ddp(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
end.record()
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0
assert (torch.cuda.max_memory_allocated() > 0) == ("modelled" in sys.argv)

if dist.get_rank() == 0:
    torch.save(ddp.state_dict(), "checkpoint.pt")
dist.barrier(device_ids=[local_rank])
for where in (device, f"cuda:{local_rank}", {"cuda:0": f"cuda:{local_rank}"}, "cpu"):
    ddp.load_state_dict(torch.load("checkpoint.pt", map_location=where))
ddp.load_state_dict(torch.load("checkpoint.pt", map_location=lambda s, _: s.cuda(local_rank)))
mean = torch.tensor([loss.item()], device=device)
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
assert dist.get_backend() == "nccl"
if dist.get_rank() == 0:
    print(f"loss {mean.item():.3f} on {torch.cuda.get_device_name()}", flush=True)
dist.destroy_process_group()
