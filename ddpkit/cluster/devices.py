"""The device on which a cluster's ranks compute, and the backend of their messages."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from ddpkit.errors import ClusterError
from ddpkit.text import count

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # files of NVIDIA's, WSL's and AMD's drivers
VARIABLE = "DDPKIT_DEVICE"  # the device of a cell that names no device


@dataclass(frozen=True)
class Place:
    """A device for every rank, and the backend of the messages between them."""

    device: str = "cpu"
    backend: str = "gloo"
    gpus: int = 0  # GPUs that the ranks of a machine share; 0 if each rank has a GPU of its own

    def __str__(self) -> str:
        shared = f", sharing {count(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{self.backend} · {self.device}{shared}"


def choose(
    device: object, ranks_here: int, gpus: int, *, nccl: bool, asked: str = "device="
) -> Place:
    """Return the device and the backend for `ranks_here` ranks on a machine with `gpus` GPUs.

    NCCL needs a GPU for each rank: two ranks on one GPU are an error. With fewer GPUs than ranks,
    gloo copies CUDA tensors through the host.

    Raises ClusterError if `device` is neither "cpu" nor "cuda", or if this machine has no GPU.
    `asked` names, in this error, the setting that chose the device.
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


def place(device: object, ranks_here: int, *, emulated: bool) -> Place:
    """Return the device and the backend for ranks on this machine.

    If `device` is None, use DDPKIT_DEVICE, or else the CPU. An emulated cluster always computes on
    the CPU, even with DDPKIT_DEVICE: times of its machines are modelled, or measured on one thread
    of this computer. Raises ClusterError for an emulated cluster with `device="cuda"`.
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
    """True if this machine has GPUs, and DDPKIT_DEVICE does not choose the CPU."""
    return os.environ.get(VARIABLE) != "cpu" and _look()[0] > 0


def _look() -> tuple[int, bool]:
    """Return the number of GPUs that torch sees, and True if torch has NCCL.

    Does not start CUDA.
    """
    if sys.platform.startswith("linux") and not any(map(os.path.exists, DRIVERS)):
        return 0, False  # without a driver there is no GPU, and an import of torch takes seconds
    import torch
    import torch.distributed as dist

    return torch.cuda.device_count(), dist.is_nccl_available()
