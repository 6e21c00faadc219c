"""The numbers of torch.cuda about memory: to the byte those of the modelled machine, if any."""

import sys

import torch

free, total = torch.cuda.mem_get_info()
assert total == torch.cuda.get_device_properties(0).total_memory == int(sys.argv[1])
before = torch.cuda.memory_allocated()
x = torch.empty(1_000_000, device="cuda")
assert torch.cuda.memory_allocated() == before + 4_000_000
assert torch.cuda.mem_get_info()[0] == free - 4_000_000
del x
assert torch.cuda.memory_allocated() == before
assert torch.cuda.max_memory_allocated() >= before + 4_000_000
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == before
assert torch.cuda.get_device_name().endswith(", emulated by ddpkit run")
if sys.argv[2:]:
    torch.empty(int(sys.argv[1]) // 4 + 1, device="cuda")
