"""Copies between the host's memory and the device's: the times on host and device, in us."""

import json
import time
from pathlib import Path

import torch

from ddpkit import busy

torch.cuda.set_device(0)
NUMBER = 25_000_000  # float32: 100 MB, 4 ms on a bus of 25 GB/s, 8 ms from pageable memory
pageable = torch.zeros(NUMBER)
pinned = torch.empty(NUMBER, pin_memory=True)
of_device = torch.zeros(NUMBER, device="cuda")
into = torch.zeros(NUMBER)

MOVES = {
    "up pinned non_blocking": lambda: pinned.to("cuda", non_blocking=True),
    "up pinned": lambda: pinned.cuda(),
    "up pageable non_blocking": lambda: pageable.cuda(non_blocking=True),
    "up pageable": lambda: pageable.to(torch.device("cuda", 0)),
    "up copy_": lambda: of_device.copy_(pageable),
    "up copy_ pinned non_blocking": lambda: of_device.copy_(pinned, non_blocking=True),
    "down non_blocking": lambda: of_device.to("cpu", non_blocking=True),
    "down": lambda: of_device.cpu(),
    "down copy_": lambda: into.copy_(of_device),
    "down copy_ pinned non_blocking": lambda: pinned.copy_(of_device, non_blocking=True),
    "there": lambda: of_device.cuda(),
    "here": lambda: pageable.cpu(),
    "device to device": lambda: of_device.clone(),
    "item": lambda: of_device[0].item(),
    "item of the host": lambda: pageable[0].item(),
}


def us(since: float) -> float:
    return round((time.perf_counter() - since) * 1e6, 3)


found = {}
for name, move in MOVES.items():
    torch.cuda.synchronize()
    start = time.perf_counter()
    busy("1 ms")
    moved = move()
    host = us(start)
    busy("0.5 ms")
    torch.cuda.synchronize()
    found[name] = host, us(start)
Path("found.json").write_text(json.dumps(found))
