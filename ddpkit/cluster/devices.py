"""Where the ranks of a cluster are to compute, and who moves their bytes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from ddpkit.errors import ClusterError
from ddpkit.text import count

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, WSL's, AMD's
VARIABLE = "DDPKIT_DEVICE"  # for cells that do not say: the same notebook on a server


@dataclass(frozen=True)
class Place:
    """A device for every rank, and the backend of the messages between them."""

    device: str = "cpu"
    backend: str = "gloo"
    gpus: int = 0  # GPUs that the ranks of one machine share, if there are fewer GPUs than ranks

    def __str__(self) -> str:
        shared = f", sharing {count(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{self.backend} · {self.device}{shared}"


def choose(device: Any, ranks_here: int, gpus: int, *, nccl: bool, asked: str = "device=") -> Place:
    """A place for `ranks_here` ranks on a machine with so many GPUs.

    NCCL wants a GPU for each rank: two ranks of it on one GPU are an error. Where there are fewer,
    gloo carries CUDA tensors through the host.

    Raises ClusterError if `device` is no device, or this machine has none of that kind. `asked`
    names what chose it.
    """
    if device == "cpu":
        return Place()
    if device != "cuda":
        raise ClusterError(f'{asked}{device!r}: ranks compute on "cpu" or on "cuda"')
    if not gpus:
        raise ClusterError(
            f"{asked}{device!r}: torch sees no GPU here (`ddpkit doctor` says why). "
            f"Without {asked.rstrip('=')} the ranks compute on the CPU."
        )
    if gpus >= ranks_here and nccl:
        return Place("cuda", "nccl")
    return Place("cuda", "gloo", gpus if gpus < ranks_here else 0)


def place(device: Any, ranks_here: int, *, emulated: bool) -> Place:
    """`choose` on this machine; without a device, the one that DDPKIT_DEVICE names, or the CPU.

    An emulated cluster computes on the CPU, whatever DDPKIT_DEVICE says: what its machines take is
    modelled, or measured on one thread of this one. Raises ClusterError if it is to have GPUs.
    """
    if emulated and device == "cuda":
        raise ClusterError(
            "device='cuda': a cluster with link= or machine= is emulated, and computes on the CPU. "
            "Leave out either device=, or both link= and machine="
        )
    if emulated and not device:
        return Place()
    asked = "device=" if device else f"{VARIABLE}="
    device = device or os.environ.get(VARIABLE) or "cpu"
    gpus, nccl = (0, False) if device == "cpu" else _look()
    return choose(device, ranks_here, gpus, nccl=nccl, asked=asked)


def has_gpus() -> bool:
    """Whether there are GPUs here, and DDPKIT_DEVICE does not say to leave them."""
    return os.environ.get(VARIABLE) != "cpu" and _look()[0] > 0


def _look() -> tuple[int, bool]:
    """How many GPUs torch would use, and whether it has NCCL. Does not start CUDA."""
    if sys.platform.startswith("linux") and not any(map(os.path.exists, DRIVERS)):
        return 0, False  # and torch, which takes seconds to import, need not be asked
    import torch
    import torch.distributed as dist

    return torch.cuda.device_count(), dist.is_nccl_available()
