"""Puts stand-ins and refusals under all names of torch's GPU functions.

`torch.cuda.memory_allocated` is also `torch.cuda.memory.memory_allocated`, and scripts use both
names. So the stand-ins are set in `torch.cuda` and `torch.accelerator`, and `spread` copies them to
all other names of the same object. Without a GPU, a function without a stand-in would raise an
error about a missing part of torch; `refuse_the_rest` replaces these errors by a clear sentence.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

from ddpkit.rank.callers import is_torchs
from ddpkit.rank.script.gpus import refusal, wants_a_gpu

TORCH = os.path.join(os.path.dirname(torch.__file__), "")
PACKAGES = ("torch.cuda", "torch.accelerator")
SELDOM_LOADED = ("torch.cuda.comm", "torch.cuda.nccl", "torch.cuda.tunable")
WAYS = {  # modules in which no call works, each with the reason and a way round
    "torch.cuda.comm": "such copies need several GPUs in a process; use torch.distributed",
    "torch.cuda.nccl": "such calls need several GPUs in a process; use torch.distributed",
    "torch.cuda.tunable": "there are no kernels of a GPU to tune; leave the call out",
    "torch.cuda.gds": "there is no memory of a GPU to which a disk writes; use torch.load",
}
WAY = "torch has this call for GPUs only; leave the call out where `ddpkit run` runs the script"
Names = dict[str, dict[str, object]]


def names() -> Names:
    """Return the public names of torch's modules for GPUs, by module, with their objects."""
    for name in SELDOM_LOADED:
        importlib.import_module(name)
    return {home: dict(vars(module)) for home, module in _modules()}


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if any(name == each or name.startswith(f"{each}.") for each in PACKAGES):
            yield name, module


def spread(before: Names) -> None:
    """Put each stand-in in the place of the object that it replaces, under all names.

    before  the names and objects before the stand-ins were set, as `names` returns them
    """
    replaced = {}
    for home, found in before.items():
        now = vars(sys.modules[home])
        for name, original in found.items():
            if not name.startswith("_") and callable(original) and now[name] is not original:
                replaced[id(original)] = now[name]
    for home, found in before.items():
        module = sys.modules[home]
        for name, original in found.items():
            if id(original) in replaced and getattr(module, name) is original:
                setattr(module, name, replaced[id(original)])


def refuse_the_rest() -> None:
    """Make each public function without a stand-in raise a clear error if it needs a GPU."""
    for home, module in _modules():
        for name, found in list(vars(module).items()):
            if not name.startswith("_") and _is_torchs(found):
                sentence = refusal(f"{home}.{name}", WAYS.get(home, WAY))
                setattr(module, name, _refusing(found, sentence, at_once=home in WAYS))


def _is_torchs(found: Any) -> bool:
    """True for a function of torch's; False for a stand-in with the same name."""
    if hasattr(found, "cache_info"):  # `functools.cache` wraps a function
        found = found.__wrapped__
    return isinstance(found, FunctionType) and found.__code__.co_filename.startswith(TORCH)


def _refusing(
    original: Callable[..., object], sentence: str, *, at_once: bool
) -> Callable[..., object]:
    @functools.wraps(original)
    def call(*args: object, **kwargs: object) -> object:
        if at_once:
            raise RuntimeError(sentence)
        try:
            return original(*args, **kwargs)
        except (AssertionError, AttributeError, ImportError, RuntimeError) as error:
            if is_torchs(sys._getframe(1)) or not wants_a_gpu(str(error)):
                raise
            raise type(error)(sentence) from error

    return call
