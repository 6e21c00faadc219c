"""The GPU of a rank: its number, its clock, and the tensors that a cell makes there.

A cell names no device, so that it is the same on a laptop and on a GPU. torch's default device does
nearly all of this, but not for numbers from a generator. A generator lives on one device:
`torch.Generator()` is on the CPU even if the default is a GPU, and torch refuses to use the
generator for a tensor on another device: `torch.randperm(n, generator=generator)` raises, and so
does a DataLoader that shuffles. This module makes torch draw such numbers on their generator's
device and then move the numbers, so batches that are shuffled by a seed are the same on a laptop
and on a GPU.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from ddpkit.protocol.assignment import Assignment
from ddpkit.rank.record.recorder import Recorder

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch


@contextmanager
def used(mine: Assignment, recorder: Recorder) -> Iterator[None]:
    """A block in which this rank uses the GPU with the rank's local number, if the run is on GPUs.

    Under torchrun the process continues after the block, and then makes new tensors on the device
    that was the default before.
    """
    if mine.device != "cuda":
        yield
        return
    import torch

    from ddpkit.rank.record.clock import GpuClock

    gpu = torch.device("cuda", mine.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(gpu)
    recorder.clock = GpuClock()
    _keep_in_children()
    with nullcontext() if mine.script else making_tensors_on(gpu):
        yield


@contextmanager
def making_tensors_on(device: torch.device) -> Iterator[None]:
    """A block in which `device` is the default device of new tensors."""
    import torch

    torch.set_default_device(device)
    try:
        with _drawn_where_the_generator_is():
            yield
    finally:
        torch.set_default_device(None)


def _drawn_where_the_generator_is() -> AbstractContextManager[object]:
    """A block in which random numbers are drawn on their generator's device, and then moved.

    The numbers are moved to the default device. Calls that name a device are left alone.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    draws = {torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal}

    def says_a_device(args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        given = (*args, *kwargs.values())
        return kwargs.get("device") is not None or any(torch.is_tensor(each) for each in given)

    class Drawn(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> object:
            kwargs = kwargs or {}
            generator = kwargs.get("generator")
            if func not in draws or generator is None or says_a_device(args, kwargs):
                return func(*args, **kwargs)
            there = {**kwargs, "device": generator.device, "requires_grad": False}
            drawn = func(*args, **there).to(torch.get_default_device())
            return drawn.requires_grad_(kwargs.get("requires_grad", False))

    return Drawn()


@cache
def _keep_in_children() -> None:
    """Keep a forked child process, such as a DataLoader's worker, from freeing objects on a GPU.

    A child inherits the recorded calls with their CUDA events and works. The child's garbage
    collector would free these objects, and such a free would end the child.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=gc.freeze)
