"""Makes "cuda" mean the CPU on a machine without a GPU: a script's GPU tensors stay in host memory.

The problem. A script for torchrun says `.cuda()`, `device="cuda"`, `map_location`; torch raises.

It would be simpler to ignore these calls. But on a GPU the calls make copies, and scripts rely on
the copies: `best = {k: v.cpu() for k, v in model.state_dict().items()}` keeps the best weights, and
would silently follow the training if `.cpu()` returned the tensor itself. So a tensor that a script
has put on a GPU has a mark in its storage, which all views share. Moving an unmarked tensor to the
GPU makes a copy, and so does moving a marked tensor back. Results of operations have no mark,
because no Python code of ddpkit sees operations. So the script's `.cpu()` copies unmarked results
too.

A dispatch mode could see all operations, and record the place of every tensor. Each operation would
then cost some microseconds of Python, which emulated time would charge.

On an emulated machine with a device, a mode sees all operations anyway. There each tensor has a
place (`rank.emulation.places`), moves are copies over the bus, and `Tensor.device` returns the
place.

Other uses of CUDA raise, as in torch without a GPU. Without a device, `Tensor.is_cuda` and
`Tensor.device` return the true place, the CPU. torch's own code always gets the true place
(`stand_ins`).
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from ddpkit import torch_private
from ddpkit.rank.callers import is_torchs
from ddpkit.rank.emulation.held import HOST, PINNED
from ddpkit.rank.script import typed_tensors
from ddpkit.rank.script.gpus import Gpus, is_plain, refusal, same
from ddpkit.rank.script.sync_batch_norm import without_sync_batch_norm

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

Torchs: TypeAlias = Callable[..., Any]  # a function or method of torch

LIKE = ("empty", "ones", "zeros", "full", "rand", "randn", "randint")
ALIASING = ("as_tensor", "asarray")  # these may return their argument itself
FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
TAKE_FSDP2 = "parameters would stay on the GPU; take fully_shard with CPUOffloadPolicy()"
NO_AUTOCAST = "a GPU multiplies 8 bits only by torch._scaled_mm; take float16 or bfloat16"
_autocast_is_on = torch.is_autocast_enabled


def become_the_cpu(gpus: Gpus) -> None:
    """Make "cuda" mean the CPU in this process, until the process ends."""
    torch_private.require(torch_private.Feature.SCRIPTS)
    # Ask for torch's constructors before the functions change: torch caches the set.
    names = {each.__name__ for each in torch_private.constructors()}
    context = torch_private.device_module().DeviceContext
    for name in sorted({*names, *(f"{name}_like" for name in LIKE)}):
        if hasattr(torch, name):
            _replace(torch, name, functools.partial(_made, gpus, name in ALIASING))
    for home, name, wrapped in (
        (torch.Tensor, "to", _to),
        (torch.Tensor, "cuda", _cuda),
        (torch.Tensor, "cpu", _cpu),
        (torch.Tensor, "type", _type),
        (torch.Tensor, "new", _new),
        (torch.Tensor, "pin_memory", _pin_memory),
        (torch.UntypedStorage, "cuda", _storage_cuda),
        (nn.Module, "to", _module_to),
        (nn.Module, "cuda", _module_cuda),
        (context, "__init__", _context),
        (context, "__torch_function__", _in_context),
        (torch.amp.autocast_mode.autocast, "__init__", _autocast),
        (torch.amp.grad_scaler.GradScaler, "__init__", _scaler),
        (DistributedDataParallel, "__init__", _ddp),
        (DistributedDataParallel, "register_comm_hook", _register),
        (DeviceMesh, "__init__", _mesh),
    ):
        _replace(home, name, functools.partial(wrapped, gpus))
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        _replace(torch, name, functools.partial(_of_autocast, gpus))
    for name in ("custom_fwd", "custom_bwd"):
        for module in (torch.amp, torch.amp.autocast_mode):
            _replace(module, name, functools.partial(_custom, gpus))
    for name in ("nested_tensor", "as_nested_tensor"):
        _replace(torch.nested, name, functools.partial(_made, gpus, False))
    for name in ("new_tensor", "new_empty", "new_zeros", "new_ones", "new_full"):
        _replace(torch.Tensor, name, functools.partial(_made, gpus, False))
    after_import(FSDP, lambda module: _replace_fsdp(gpus, module))
    # A DataLoader that is to pin memory looks for a GPU itself, and warns.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
    torch.serialization.register_package(5, lambda _: None, functools.partial(_restored, gpus))


def _replace(home: object, name: str, wrapped: Torchs) -> None:
    """Replace the function `name` of `home` by one that calls `wrapped(original, ...)`."""
    original = getattr(home, name)

    @functools.wraps(original)
    def wrapper(*args: object, **kwargs: object) -> object:
        return wrapped(original, *args, **kwargs)

    setattr(home, name, wrapper)
    # TorchScript finds an operation by the id of its function, in this table
    known = torch_private.builtin_table()
    if known and id(original) in known:  # a table made later will hold the wrapper
        known[id(wrapper)] = known[id(original)]


def _replace_fsdp(gpus: Gpus, module: ModuleType) -> None:
    torch_private.require(torch_private.Feature.FSDP1)
    _replace(module.FullyShardedDataParallel, "__init__", functools.partial(_fsdp, gpus))
    # For `FullStateDictConfig(offload_to_cpu=True)`: torch would free storages that it did not
    # copy.
    torch_private.flat_parameters().to_cpu = lambda _: nullcontext()


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act` with the module `name`: now if it is imported, else when the script imports it."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Later(name, act))


class _Later(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name, self._act = name, act

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._act(module)

        spec.loader.exec_module = exec_module
        return spec


# The replacements of torch's functions; each gets the GPUs and the original as first arguments


def _made(gpus: Gpus, aliasing: bool, original: Torchs, *args: object, **kwargs: object) -> object:
    pinned = kwargs.get("pin_memory")
    if pinned:  # memory that a GPU can read: here a GPU can read all memory
        gpus.used()
        kwargs["pin_memory"] = False
    device, by_torch = kwargs.get("device"), is_torchs(sys._getframe(2))
    asks = original.__name__ == "new_tensor" and not by_torch
    if device is None and asks and gpus.holds(args[0]):
        device = "cuda"
    there = gpus.means(device)
    if there:
        kwargs["device"] = "cpu"
    to_copy = there and aliasing
    named = device is not None and not to_copy
    with gpus.making(on_gpu=there and not to_copy, named=named, by_torch=by_torch):
        made = original(*args, **kwargs)
    if pinned and gpus.places is not None and is_plain(made):
        gpus.places.place(made, PINNED)
    if not there:
        if device is not None and not by_torch and gpus.holds(made):  # `on_gpu.new_ones(device=)`
            gpus.places.place(made, HOST)  # type: ignore[union-attr]
        return made
    return gpus.take(made) if aliasing else gpus.mark(made)


def _new(gpus: Gpus, original: Torchs, tensor: Tensor, *args: object, **kwargs: object) -> object:
    """Make a tensor as `tensor.new(3)` did of old: beside the tensor."""
    made = original(tensor, *args, **kwargs)
    by_torch = is_torchs(sys._getframe(2))
    return gpus.mark(made) if not by_torch and gpus.holds(tensor) else made


def _to(gpus: Gpus, original: Torchs, tensor: Tensor, *args: object, **kwargs: object) -> object:
    device = kwargs.get("device", args[0] if args else None)
    if isinstance(device, torch.Tensor) and gpus.holds(device):
        tensor = gpus.take(tensor, non_blocking=_non_blocking(args, kwargs))
    there = gpus.means(device)
    if not there and not isinstance(device, str | torch.device):
        return original(tensor, *args, **kwargs)
    if there and "device" in kwargs:
        kwargs["device"] = "cpu"
    elif there:
        args = ("cpu", *args[1:])
    if gpus.places is not None and is_plain(tensor):
        given, frame = tensor, sys._getframe(2)
        if there or torch_private.moves_up(frame):
            tensor = gpus.take(tensor, non_blocking=_non_blocking(args, kwargs))
        elif gpus.holds(tensor) and (not is_torchs(frame) or torch_private.moves_down(frame)):
            tensor = gpus.bring(tensor, non_blocking=_non_blocking(args, kwargs))
        if tensor is not given:
            kwargs.pop("copy", None)
        return original(tensor, *args, **kwargs)
    moved = original(tensor, *args, **kwargs)
    if there:
        return gpus.take(moved) if is_plain(moved) and same(moved, tensor) else gpus.mark(moved)
    return gpus.fetch(moved, tensor, by_torch=is_torchs(sys._getframe(2)))


def _non_blocking(args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Return the argument `non_blocking` of `Tensor.to`, by name or the first bool by position."""
    given = [each for each in args if isinstance(each, bool)]
    return bool(kwargs.get("non_blocking", given[0] if given else False))


def _cuda(
    gpus: Gpus,
    _: object,
    tensor: Tensor,
    device: object = None,
    non_blocking: bool = False,
    **__: object,
) -> Tensor:
    gpus.used()
    return gpus.take(tensor, non_blocking=non_blocking)


def _type(
    gpus: Gpus, original: Torchs, tensor: Tensor, dtype: object = None, *rest: object, **kw: object
) -> object:
    dtype = typed_tensors.name_of(dtype)
    if not isinstance(dtype, str) or not dtype.startswith("torch.cuda."):
        return original(tensor, dtype, *rest, **kw) if dtype is not None else original(tensor)
    gpus.used()
    return gpus.take(original(tensor, dtype.replace("torch.cuda.", "torch."), *rest, **kw))


def _cpu(gpus: Gpus, original: Torchs, tensor: Tensor, *args: object, **kwargs: object) -> Tensor:
    if gpus.holds(tensor):
        return gpus.bring(tensor)
    by_torch = is_torchs(sys._getframe(2))
    return gpus.fetch(original(tensor, *args, **kwargs), tensor, by_torch=by_torch)


def _pin_memory(gpus: Gpus, _: object, given: Tensor, *args: object, **kwargs: object) -> Tensor:
    gpus.used()
    return given if gpus.places is None or not is_plain(given) else gpus.places.pin(given)


def _storage_cuda(
    gpus: Gpus, _: object, storage: UntypedStorage, *args: object, **kwargs: object
) -> object:
    """Mark a storage that was just loaded as being on the GPU, for a script's `map_location`."""
    gpus.used()
    return gpus.mark_storage(storage)


def _module_to(
    gpus: Gpus, original: Torchs, module: nn.Module, *args: object, **kwargs: object
) -> object:
    device = kwargs.get("device", args[0] if args else None)
    if not gpus.means(device):
        return original(module, *args, **kwargs)
    kwargs.pop("device", None)
    rest = args[1:] if args and args[0] is device else args
    if kwargs.get("dtype") or any(isinstance(each, torch.dtype) for each in rest):
        module = original(module, *rest, **kwargs)
    return torch_private.applied(module, gpus.take)


def _module_cuda(
    gpus: Gpus, _: object, module: nn.Module, *args: object, **kwargs: object
) -> object:
    gpus.used()
    return torch_private.applied(module, gpus.take)


def _context(gpus: Gpus, original: Torchs, context: Any, device: object) -> None:
    context.of_gpu = gpus.means(device)
    original(context, "cpu" if context.of_gpu else device)


def _in_context(
    gpus: Gpus, original: Torchs, context: Any, function: object, *rest: object
) -> object:
    if not context.of_gpu or function not in torch_private.constructors():
        return original(context, function, *rest)
    with gpus.making(on_gpu=True, named=True, by_torch=False):
        return gpus.mark(original(context, function, *rest))


def _of_autocast(gpus: Gpus, original: Torchs, device_type: str = "cuda") -> object:
    """Return the state or the dtype of autocast for a device.

    A stand-in GPU has the CPU's state and dtype if autocast is on for the CPU.
    """
    on = _autocast_is_on("cpu") and gpus.means(device_type)
    return original("cpu" if on else device_type)


def _custom(
    gpus: Gpus, original: Torchs, *args: object, device_type: str, **kwargs: object
) -> object:
    """Return torch's `custom_fwd` or `custom_bwd` decorator, with the CPU for a stand-in GPU."""
    return original(*args, device_type="cpu" if gpus.means(device_type) else device_type, **kwargs)


def _autocast(
    gpus: Gpus,
    original: Torchs,
    block: object,
    device_type: str,
    dtype: torch.dtype | None = None,
    *rest: object,
    **kw: object,
) -> None:
    if gpus.means(device_type):
        device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        enabled = rest[0] if rest else kw.get("enabled", True)
        if enabled and dtype.itemsize == 1:
            raise RuntimeError(refusal(f"torch.autocast(dtype={dtype})", NO_AUTOCAST))
        if enabled and dtype not in (torch.float16, torch.bfloat16):
            rest, kw = rest[1:], {**kw, "enabled": False}
    original(block, device_type, dtype, *rest, **kw)


def _scaler(
    gpus: Gpus, original: Torchs, scaler: object, device: str = "cuda", *rest: object, **kw: object
) -> None:
    original(scaler, "cpu" if gpus.means(device) else device, *rest, **kw)


def _ddp(
    gpus: Gpus,
    original: Torchs,
    ddp: object,
    module: nn.Module,
    device_ids: Sequence[object] | None = None,
    output_device: object = None,
    *rest: object,
    **kwargs: object,
) -> None:
    if any(map(gpus.means, device_ids or ())):
        device_ids = output_device = None
    with without_sync_batch_norm():
        original(ddp, module, device_ids, output_device, *rest, **kwargs)


def _register(_: Gpus, original: Torchs, ddp: object, state: object, hook: Torchs) -> None:
    """Register a DDP hook.

    A bfloat16 hook has a different name during the call: torch demands a GPU for hooks of its name.
    """
    name = getattr(hook, "__name__", "")
    if not name.startswith("bf16_compress"):
        original(ddp, state, hook)
        return
    hook.__name__ = "compress_to_bf16"
    try:
        original(ddp, state, hook)
    finally:
        hook.__name__ = name


def _fsdp(gpus: Gpus, original: Torchs, *args: object, **kwargs: object) -> None:
    bound = inspect.signature(original).bind(*args, **kwargs)  # options may come by position
    given = bound.arguments
    offloads = getattr(given.get("cpu_offload"), "offload_params", False)
    if gpus.places is not None and offloads:
        raise RuntimeError(refusal("FSDP(cpu_offload=CPUOffload(offload_params=True))", TAKE_FSDP2))
    if gpus.means(given.get("device_id")) or (given.get("device_id") is None and gpus.is_used):
        given["device_id"] = torch.device("cpu")
        if gpus.places is not None:
            torch_private.applied(given["module"], gpus.take)
    if offloads and gpus.is_used and not hasattr(torch.cpu.Stream, "synchronize"):
        # Each backward with offloaded parameters waits for a stream, here for one of the CPU.
        torch.cpu.Stream.synchronize = lambda _: None  # type: ignore[attr-defined]
    original(*bound.args, **bound.kwargs)


def _mesh(
    gpus: Gpus, original: Torchs, mesh: object, device_type: str, *rest: object, **kw: object
) -> None:
    original(mesh, "cpu" if gpus.means(device_type) else device_type, *rest, **kw)


def _restored(gpus: Gpus, storage: UntypedStorage, location: str) -> UntypedStorage | None:
    """Return a storage that torch.load puts on a GPU; None for other storages."""
    if not gpus.means(location):
        return None
    return gpus.mark_storage(storage)
