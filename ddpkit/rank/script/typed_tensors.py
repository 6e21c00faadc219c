"""`torch.cuda.FloatTensor` and its like: the types with which old scripts make GPU tensors."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ddpkit.rank.script.gpus import Gpus

NAME = "_ddpkit_name"  # an attribute of a replaced type: "torch.cuda.FloatTensor"


def stand_in(gpus: Gpus) -> None:
    """Replace the types of torch.cuda, and the default type of new tensors, for good."""
    for name in list(vars(torch)):
        if name.endswith("Tensor") and hasattr(torch.cuda, name):
            setattr(torch.cuda, name, _of_gpus(gpus, name))
    original: Any = torch.set_default_tensor_type

    @functools.wraps(original)
    def set_default_tensor_type(kind: Any) -> None:
        kind = name_of(kind)
        on_gpu = isinstance(kind, str) and kind.startswith("torch.cuda.")
        original(kind.replace("torch.cuda.", "torch.") if on_gpu else kind)
        torch.set_default_device("cuda" if on_gpu else None)

    torch.set_default_tensor_type = set_default_tensor_type


def name_of(kind: object) -> object:
    """Return the name of a replaced type, and any other argument unchanged."""
    return getattr(kind, NAME, kind) if isinstance(kind, type) else kind


def _of_gpus(gpus: Gpus, name: str) -> type:
    original = getattr(torch, name)

    class TypeOfGpus(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original) and gpus.has(instance)

    def make(_: type, *args: object, **kwargs: object) -> object:
        gpus.used()
        with gpus.making(on_gpu=True, named=True, by_torch=False):
            made = original(*args, **kwargs)
        given = bool(args) and isinstance(args[0], torch.Tensor)  # may be the result itself
        return gpus.take(made) if given else gpus.mark(made)

    body = {"__new__": make, NAME: f"torch.cuda.{name}", "__module__": "torch.cuda"}
    return TypeOfGpus(name, (), {**body, "dtype": original.dtype})
