"""Where there is no GPU, cuda means the CPU: what a script puts on a GPU stays where it is.

The problem. A script for torchrun says `.cuda()`, `device="cuda"`, `map_location`; torch raises.

It would be simpler to let each mean nothing. But on a GPU these make copies, and scripts rely on it
without a thought: `best = {k: v.cpu() for k, v in model.state_dict().items()}` keeps the best
weights, and would silently follow the training if `.cpu()` gave the tensor itself. So a tensor that
a script has put on a GPU is marked, in its storage, which its views share; to move an unmarked one
there copies it, and so does to move a marked one back. What an operation returns is not marked, for
no Python of ours hears of it: `.cpu()` of the script's copies that too.

It would be more to let every tensor carry its device, by a mode that hears of all operations. Each
would then cost some microseconds of Python, which emulated time would charge.

What is not replaced raises, as torch does without a GPU. `Tensor.is_cuda` and `Tensor.device` tell
the truth: the CPU. What torch's own code asks, `is_available` among it, is answered truly too
(`stand_ins`).
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from ddpkit import torch_private
from ddpkit.rank.callers import is_torchs

LIKE = ("empty", "ones", "zeros", "full", "rand", "randn", "randint")
ALIASING = ("as_tensor", "asarray")  # these may return what they are given
FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
MARK = "_ddpkit_on_gpu"
# Parts of what torch says where something needs a GPU, and the script is to be told why.
WANTS_A_GPU = (
    *("Cannot access accelerator device", "Tried to instantiate dummy base class"),
    *("not linked with support for cuda", "Torch not compiled with CUDA", "No CUDA GPUs"),
    *("only work with GPU modules", "on supported devices: ['cuda'", "Found no NVIDIA driver"),
    *("has no attribute '_cuda", "has no attribute '_nccl", "attribute 'ProcessGroupNCCL'"),
)
_autocast_is_on = torch.is_autocast_enabled


def on_a_gpu(device: Any) -> bool:
    """Whether a script means a GPU by a device: "cuda:0", torch.device("cuda"), or its number."""
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


class Gpus:
    """The GPUs of a rank that has none; `why` it has none is said once the script uses one."""

    def __init__(self, why: str) -> None:
        self._why, self._said = why, set[str]()

    def used(self) -> None:
        """Note that the script uses a GPU."""
        if not self._said:
            self.say_once(f"{self._why}: cuda means the CPU")

    def say_once(self, text: str) -> None:
        """Say something to the reader, on rank 0, however often it is true."""
        if text not in self._said and os.environ.get("RANK") == "0":
            print(f"ddpkit run: {text}", file=sys.stderr)
        self._said.add(text)

    def explain(self, error: BaseException) -> None:
        """Add a sentence to an error of torch's that comes of there being no GPU."""
        text = str(error)
        if any(part in text for part in WANTS_A_GPU):
            error.add_note(
                f"ddpkit run: {self._why}, but this call needs a real GPU. docs/run.md, "
                '"Where there is no GPU", lists the calls that work without a GPU.'
            )

    def means(self, device: Any) -> bool:
        """Whether a device is one of these."""
        if not on_a_gpu(device):
            return False
        self.used()
        return True

    def take(self, tensor: Any) -> Any:
        """A tensor as it is on a GPU: a copy, unless it is there."""
        if not _is_plain(tensor) or _is_marked(tensor):
            return tensor
        return mark(tensor.clone())

    def fetch(self, tensor: Any, given: Any, *, by_torch: bool) -> Any:
        """What `.cpu()` gives, where torch's own has given `tensor` for `given`."""
        if not self._said or not _is_plain(given) or not _same(tensor, given):
            return tensor
        made_here = given.is_leaf and given.requires_grad  # by the script, on the CPU
        if _is_marked(given) or not (by_torch or made_here):
            return tensor.clone()
        return tensor


def mark(tensor: Any) -> Any:
    """Note that a tensor is on a GPU, as the script has it; returns the tensor."""
    if _is_plain(tensor):
        setattr(tensor.untyped_storage(), MARK, True)
    return tensor


def _is_plain(tensor: Any) -> bool:
    """Whether it has a storage of its own on the CPU: no DTensor, no fake one, nothing sparse."""
    plain = type(tensor) in (torch.Tensor, nn.Parameter, nn.Buffer)
    return plain and tensor.layout == torch.strided and tensor.device.type == "cpu"


def _is_marked(tensor: Any) -> bool:
    return hasattr(tensor.untyped_storage(), MARK)


def _same(one: Any, other: Any) -> bool:
    return _is_plain(one) and _storage(one) == _storage(other)


def _storage(tensor: Any) -> int:
    return torch_private.storage_id(tensor.untyped_storage())


def become_the_cpu(gpus: Gpus) -> None:
    """Let cuda mean the CPU in this process, for good."""
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
        (torch.Tensor, "pin_memory", _as_it_is),
        (torch.UntypedStorage, "cuda", _storage_cuda),
        (nn.Module, "to", _module_to),
        (nn.Module, "cuda", _module_cuda),
        (context, "__init__", _context),
        (context, "__torch_function__", _in_context),
        (torch.amp.autocast_mode.autocast, "__init__", _autocast),
        (torch.amp.grad_scaler.GradScaler, "__init__", _scaler),
        (DistributedDataParallel, "__init__", _ddp),
        (DeviceMesh, "__init__", _mesh),
    ):
        _replace(home, name, functools.partial(wrapped, gpus))
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        _replace(torch, name, functools.partial(_of_autocast, gpus))
    for name in ("custom_fwd", "custom_bwd"):
        for module in (torch.amp, torch.amp.autocast_mode):
            _replace(module, name, functools.partial(_custom, gpus))
    for name in ("new_tensor", "new_empty", "new_zeros", "new_ones", "new_full"):
        _replace(torch.Tensor, name, functools.partial(_made, gpus, False))
    _after_import(FSDP, lambda module: _replace_fsdp(gpus, module))
    # A DataLoader that is to pin memory looks for a GPU itself, and warns.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
    torch.serialization.register_package(5, lambda _: None, functools.partial(_restored, gpus))


def _replace(home: Any, name: str, wrapped: Callable[..., Any]) -> None:
    """Put `wrapped(original, ...)` in the place of a function."""
    original = getattr(home, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return wrapped(original, *args, **kwargs)

    setattr(home, name, wrapper)
    known = torch_private.builtin_table()  # TorchScript's: its operations by their functions
    if known and id(original) in known:  # if there is no table yet, it will hold the wrapper
        known[id(wrapper)] = known[id(original)]


def _replace_fsdp(gpus: Gpus, module: Any) -> None:
    torch_private.require(torch_private.Feature.FSDP1)
    _replace(module.FullyShardedDataParallel, "__init__", functools.partial(_fsdp, gpus))
    # For `FullStateDictConfig(offload_to_cpu=True)`: torch would free what it has not copied.
    torch_private.flat_parameters().to_cpu = lambda _: nullcontext()


def _after_import(name: str, act: Callable[[Any], None]) -> None:
    """Call `act` on a module once it is imported: now, or when the script does it."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Later(name, act))


class _Later(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, act: Callable[[Any], None]) -> None:
        self._name, self._act = name, act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self._act(module)

        spec.loader.exec_module = exec_module
        return spec


# What is in the place of torch's functions: each is given the GPUs and the original first


def _made(gpus: Gpus, aliasing: bool, original: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("pin_memory"):  # memory that a GPU can read: there is none that cannot
        gpus.used()
        kwargs["pin_memory"] = False
    if not gpus.means(kwargs.get("device")):
        return original(*args, **kwargs)
    made = original(*args, **{**kwargs, "device": "cpu"})
    return gpus.take(made) if aliasing else mark(made)


def _to(gpus: Gpus, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    device = kwargs.get("device", args[0] if args else None)
    there = gpus.means(device)
    if not there and not isinstance(device, str | torch.device):
        return original(tensor, *args, **kwargs)
    if there and "device" in kwargs:
        kwargs["device"] = "cpu"
    elif there:
        args = ("cpu", *args[1:])
    moved = original(tensor, *args, **kwargs)
    if there:
        return gpus.take(moved) if _is_plain(moved) and _same(moved, tensor) else mark(moved)
    return gpus.fetch(moved, tensor, by_torch=is_torchs(sys._getframe(2)))


def _cuda(gpus: Gpus, _: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    gpus.used()
    return gpus.take(tensor)


def _cpu(gpus: Gpus, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    by_torch = is_torchs(sys._getframe(2))
    return gpus.fetch(original(tensor, *args, **kwargs), tensor, by_torch=by_torch)


def _as_it_is(gpus: Gpus, _: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
    gpus.used()
    return given


def _storage_cuda(gpus: Gpus, _: Any, storage: Any, *args: Any, **kwargs: Any) -> Any:
    """What a `map_location` of the script's calls, on a storage that was just read."""
    gpus.used()
    setattr(storage, MARK, True)
    return storage


def _module_to(gpus: Gpus, original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    device = kwargs.get("device", args[0] if args else None)
    if not gpus.means(device):
        return original(module, *args, **kwargs)
    kwargs.pop("device", None)
    rest = args[1:] if args and args[0] is device else args
    if kwargs.get("dtype") or any(isinstance(each, torch.dtype) for each in rest):
        module = original(module, *rest, **kwargs)
    return torch_private.applied(module, gpus.take)


def _module_cuda(gpus: Gpus, _: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    gpus.used()
    return torch_private.applied(module, gpus.take)


def _context(gpus: Gpus, original: Any, context: Any, device: Any) -> None:
    context.of_gpu = gpus.means(device)
    original(context, "cpu" if context.of_gpu else device)


def _in_context(gpus: Gpus, original: Any, context: Any, function: Any, *rest: Any) -> Any:
    made = original(context, function, *rest)
    if context.of_gpu and function in torch_private.constructors():
        mark(made)
    return made


def _of_autocast(gpus: Gpus, original: Any, device_type: str = "cuda") -> Any:
    """Whether autocast is on, or to what: for a GPU what holds on the CPU, if it is on there."""
    on = _autocast_is_on("cpu") and gpus.means(device_type)
    return original("cpu" if on else device_type)


def _custom(gpus: Gpus, original: Any, *args: Any, device_type: str, **kwargs: Any) -> Any:
    """A decorator for a function of autograd's, which casts what lies on the device."""
    return original(*args, device_type="cpu" if gpus.means(device_type) else device_type, **kwargs)


def _autocast(
    gpus: Gpus,
    original: Any,
    block: Any,
    device_type: str,
    dtype: Any = None,
    *rest: Any,
    **kw: Any,
) -> None:
    if gpus.means(device_type):
        device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
    original(block, device_type, dtype, *rest, **kw)


def _scaler(
    gpus: Gpus, original: Any, scaler: Any, device: str = "cuda", *rest: Any, **kw: Any
) -> None:
    original(scaler, "cpu" if gpus.means(device) else device, *rest, **kw)


def _ddp(
    gpus: Gpus,
    original: Any,
    ddp: Any,
    module: Any,
    device_ids: Any = None,
    output_device: Any = None,
    *rest: Any,
    **kwargs: Any,
) -> None:
    if any(map(gpus.means, device_ids or ())):
        device_ids = output_device = None
    original(ddp, module, device_ids, output_device, *rest, **kwargs)


def _fsdp(gpus: Gpus, original: Any, fsdp: Any, *args: Any, **kwargs: Any) -> None:
    if gpus.means(kwargs.get("device_id")):
        kwargs["device_id"] = torch.device("cpu")
    original(fsdp, *args, **kwargs)


def _mesh(gpus: Gpus, original: Any, mesh: Any, device_type: str, *rest: Any, **kw: Any) -> None:
    original(mesh, "cpu" if gpus.means(device_type) else device_type, *rest, **kw)


def _restored(gpus: Gpus, storage: Any, location: str) -> Any:
    """A storage that torch.load puts on a GPU; None for one that it does not."""
    if not gpus.means(location):
        return None
    setattr(storage, MARK, True)
    return storage
