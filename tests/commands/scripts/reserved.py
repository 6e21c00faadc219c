"""The segments of torch's caching allocator, by size and stream, and a snapshot of the segments."""

import pickle

import torch
from torch.cuda import _memory_viz

MIB = 1 << 20
torch.cuda.set_device(0)


def reserved() -> tuple[int, int]:
    return torch.cuda.memory_allocated() // MIB, torch.cuda.memory_reserved() // MIB


def make(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


assert reserved() == (0, 0)
first = make(3)
assert reserved() == (3, 20)  # requests below 10 MiB share segments of 20 MiB
second = make(16)
assert reserved() == (19, 20)
del first, second
assert reserved() == (0, 20)
with torch.cuda.stream(torch.cuda.Stream()):
    beside = make(3)  # blocks of another stream are not used
assert reserved() == (3, 40)
torch.cuda.empty_cache()
assert reserved() == (3, 20)
assert torch.cuda.max_memory_reserved() == 40 * MIB
assert torch.cuda.memory_stats()["reserved_bytes.all.peak"] == 40 * MIB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_reserved() == 20 * MIB
(segment,) = torch.cuda.memory_snapshot()
assert [block["state"] for block in segment["blocks"]] == ["active_allocated", "inactive"]
torch.cuda.memory._dump_snapshot("memory.pickle")
with open("memory.pickle", "rb") as file:
    snapshot = pickle.load(file)
assert snapshot["segments"] == [segment]
summary = _memory_viz.segsum(snapshot)  # torch's own reader
assert "20.0MiB" in summary, summary
assert "3.0MiB" in summary, summary
