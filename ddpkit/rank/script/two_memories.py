"""Shows a script two memories, the device's and the host's, on an emulated machine with a device.

Each tensor has a place (`rank.emulation.places`). `Tensor.device`, `is_cuda` and `get_device()`
return the place to all code except torch's and ddpkit's. Pinned memory is a part of the host's
memory, a DataLoader pins its batches, and FSDP2 moves parameters as it does on GPUs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from ddpkit import torch_private
from ddpkit.rank.callers import module_of
from ddpkit.rank.emulation import machine
from ddpkit.rank.emulation.places import Places
from ddpkit.rank.script.cuda import after_import
from ddpkit.rank.script.gpus import Gpus

if TYPE_CHECKING:
    from types import ModuleType

PINS = "_ddpkit_pins"  # an attribute of a DataLoader's iterator


def show(gpus: Gpus, places: Places) -> None:
    """Show the script the place of each tensor, until the process ends."""
    tensor: Any = torch.Tensor
    known = torch_private.sharded_ops()
    for name, on_gpu in (
        ("device", lambda: torch.device("cuda", gpus.current)),
        ("is_cuda", lambda: True),
    ):
        truth = getattr(tensor, name).__get__
        setattr(tensor, name, property(_answering(gpus, truth, on_gpu)))
        if truth in known:  # torch looks up the getter in this table
            known[getattr(tensor, name).__get__] = known[truth]
    tensor.get_device = _answering(gpus, tensor.get_device, lambda: gpus.current)
    for name in ("numpy", "__array__"):
        setattr(tensor, name, _of_host_alone(gpus, getattr(tensor, name)))
    tensor.is_pinned = lambda tensor, *_: places.is_pinned(tensor)
    iterator = torch_private.batches()
    iterator.__next__ = _pinning(iterator.__next__)
    iterator.__init__ = _noting(iterator.__init__)
    torch_private.require(torch_private.Feature.DEVICES)
    for module in torch_private.FSDP2_MOVES:
        after_import(module, functools.partial(_move_parameters, gpus))


def _answering(
    gpus: Gpus, truth: Callable[..., object], on_gpu: Callable[[], object]
) -> Callable[..., object]:
    """Return a function that calls `on_gpu` for tensors on a GPU, and torch's own for others."""

    def tell(tensor: torch.Tensor) -> object:
        if not _is_inner(sys._getframe(1)) and gpus.holds(tensor):
            return on_gpu()
        return truth(tensor)

    return tell


def _of_host_alone(gpus: Gpus, original: Callable[..., object]) -> Callable[..., object]:
    """Return a conversion to NumPy that refuses GPU tensors, as torch does without `force`."""

    @functools.wraps(original)
    def to_numpy(tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
        forced = kwargs.get("force", False)
        if not forced and not _is_inner(sys._getframe(1)) and gpus.holds(tensor):
            raise TypeError(
                f"can't convert cuda:{gpus.current} device type tensor to numpy. Use Tensor.cpu() "
                "to copy the tensor to host memory first."
            )
        return original(tensor, *args, **kwargs)

    return to_numpy


def _is_inner(frame: FrameType) -> bool:
    """True for code of torch and of ddpkit, which must see the true device of a tensor."""
    return module_of(frame).partition(".")[0] in ("torch", "ddpkit")


def _noting(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def note(batches: object, loader: DataLoader[object]) -> None:
        original(batches, loader)
        setattr(batches, PINS, loader.pin_memory)

    return note


def _pinning(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `__next__` for a DataLoader's iterator that pins batches, as if there were a GPU.

    torch pins the batches of worker processes in a thread, so pinning takes no time on the main
    thread's clock.
    """

    @functools.wraps(original)
    def take_next(batches: object) -> object:
        batch = original(batches)
        if not getattr(batches, PINS, False):
            return batch
        emulated = machine.current()
        by_thread = isinstance(batches, torch_private.batches_of_workers())
        with emulated.clocks.mine.stopped() if emulated and by_thread else nullcontext():
            return torch_private.pinned(batch)

    return take_next


def _move_parameters(gpus: Gpus, module: ModuleType) -> None:
    """Make FSDP2 move parameters to the GPU.

    torch's own code finds them already on the mesh's device, the CPU, and would not move them.
    """
    name = torch_private.MOVE_STATES
    original = getattr(module, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def move(
        parameters: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor], device: object
    ) -> None:
        original(parameters, buffers, device)
        for tensor in (*parameters, *buffers):
            if gpus.is_used and not gpus.holds(tensor):
                tensor.data = gpus.take(tensor.data)

    setattr(module, name, move)
