"""Replaces `torch.cuda` and `torch.accelerator` for a script on a machine without a GPU.

A rank has as many GPUs as its host has ranks; `set_device` accepts each of them. torch's own code
sees no GPU, so torch takes no path that needs a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ddpkit import torch_private
from ddpkit.rank.callers import is_torchs
from ddpkit.rank.emulation import machine, streams
from ddpkit.rank.emulation.allocator import CachingAllocator
from ddpkit.rank.record.recorder import moment_ns
from ddpkit.rank.script import homes, typed_tensors
from ddpkit.rank.script.gpu_calls import stand_in_for_calls
from ddpkit.rank.script.gpus import Gpus, on_a_gpu
from ddpkit.rank.script.properties import properties, told_capability

if TYPE_CHECKING:
    from ddpkit.rank.emulation.device import Device

NAME = "the CPU, where ddpkit run finds no GPU"
CUDNN = 91002  # a script is told version 9.10.2
AMPERE = (8, 0)  # the least compute capability with bfloat16 and TF32
# Functions of torch.cuda that do nothing here (IDLE, RESETS), or return 0 (COUNTS).
IDLE = (
    *("synchronize", "empty_cache", "ipc_collect", "init", "set_per_process_memory_fraction"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all"),
    *("reset_accumulated_memory_stats", "reset_peak_host_memory_stats", "set_sync_debug_mode"),
    "reset_accumulated_host_memory_stats",
    "is_current_stream_capturing",  # None counts as False: there are no graphs
)
IN_USE = ("memory_allocated", "memory_reserved", "memory_cached")
RESETS = ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")
COUNTS = (
    *(*IN_USE, "device_memory_used"),
    *(f"max_{name}" for name in IN_USE),
    *("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"),
)


class CpuStream:
    """A stream of a stand-in GPU: all its work is already done, because the CPU does it at once."""

    cuda_stream, stream_id = 0, 0

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.device, self.priority = torch.device("cuda", 0), priority

    def __enter__(self) -> CpuStream:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, because there is no other stream."""

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority of streams."""
        return 0, -1

    def _nothing(self, *_: object) -> None:
        """Do nothing, because all work is done."""

    synchronize = wait_stream = wait_event = _nothing

    def query(self) -> bool:
        """True, because all work is done."""
        return True

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        """Record an event that happens now, and return the event."""
        event = event or CpuEvent()
        event.record()
        return event


class CpuEvent:
    """An event of a stand-in GPU: a moment on the rank's own clock."""

    def __init__(self, *_: object, **__: object) -> None:
        self.ns = 0

    def record(self, stream: Any = None) -> None:
        """Set the event to the present moment."""
        self.ns = moment_ns()

    def query(self) -> bool:
        """True, because the event has happened."""
        return True

    def _nothing(self, *_: object) -> None:
        """Do nothing, because the event has happened."""

    synchronize = wait = _nothing

    def elapsed_time(self, end_event: CpuEvent) -> float:
        """Return the milliseconds from this event to a later event."""
        return (end_event.ns - self.ns) / 1e6


def stand_in(gpus: Gpus, count: int) -> None:
    """Show a script `count` GPUs, until the process ends."""
    seen, before = _Seen(gpus, count), homes.names()
    emulated = machine.current()
    kind = "" if emulated is None or emulated.memory is None else emulated.memory.model.name
    capability = told_capability(kind)
    told: dict[str, object] = {
        "is_available": True,
        "device_count": count,
        "is_tf32_supported": capability >= AMPERE,
        "get_arch_list": [f"sm_{major}{minor}" for major, minor in (capability,)],
        "get_device_name": NAME,
        "get_device_capability": capability,
        "get_device_properties": properties(kind, _memory(), NAME),
        "get_per_process_memory_fraction": 1.0,
        "can_device_access_peer": True,
        "mem_get_info": (_memory(), _memory()),
        "memory_stats": _stats(0, 0),
        "memory_summary": f"({NAME})",
        **dict.fromkeys((*IDLE, *RESETS)),
        **dict.fromkeys(COUNTS, 0),
    }
    modelled = _of_a_modelled_machine()
    found = {**{name: _always(value) for name, value in told.items()}, **modelled}
    found["is_bf16_supported"] = lambda including_emulation=True: (
        including_emulation or capability >= AMPERE
    )
    for name, find in found.items():
        seen.tell(torch.cuda, name, find, is_zero=name in COUNTS and name not in modelled)
    torch.Generator = _generators(gpus, torch.Generator)  # type: ignore[misc]
    for name, value in (
        ("is_available", True),
        ("device_count", count),
        ("current_accelerator", torch.device("cuda")),
        ("synchronize", None),
        ("empty_host_cache", None),
        ("reset_accumulated_memory_stats", None),
        ("current_stream", CpuStream()),
        ("set_stream", None),
    ):
        seen.tell(torch.accelerator, name, _always(value))
    for name in (
        "memory_stats",
        "empty_cache",
        *IN_USE,
        *(f"max_{use}" for use in IN_USE),
        RESETS[0],
    ):
        seen.tell(torch.accelerator, name, found[name])
    seen.tell(torch.cuda.memory, torch_private.MEMORY_HISTORY, _always(None))
    seen.tell(dist, "is_nccl_available", _always(True))
    for home, name, value in (
        (torch.backends.cuda, "is_built", True),
        (torch.backends.cuda, "is_flash_attention_available", capability >= AMPERE),
        (torch.backends.cudnn, "is_available", True),
        (torch.backends.cudnn, "version", CUDNN),
    ):
        seen.tell(home, name, _always(value))
    for home, names in (
        (torch.cuda, ("set_device", "current_device")),
        (torch.accelerator, ("set_device_index", "current_device_index")),
        (torch.accelerator, ("set_device_idx", "current_device_idx")),
    ):
        for name, function in zip(names, (seen.set_device, seen.current_device), strict=True):
            if hasattr(home, name):
                setattr(home, name, function)
    cuda: Any = torch.cuda
    cuda.Stream = cuda.ExternalStream = CpuStream
    cuda.Event = CpuEvent
    cuda.current_stream = cuda.default_stream = lambda device=None: CpuStream()
    cuda.stream = lambda stream: contextlib.nullcontext(stream)
    cuda.device, cuda.device_of = seen.device, lambda tensor: contextlib.nullcontext(tensor)
    cuda.get_rng_state = lambda device="cuda": torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()] * count
    typed_tensors.stand_in(gpus)
    if emulated is not None and emulated.device is not None:
        _let_streams_be_the_devices(seen, emulated.device)
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, lambda *_, **__: 0)
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
    stand_in_for_calls(gpus, count)
    homes.spread(before)
    homes.refuse_the_rest()


def _let_streams_be_the_devices(seen: _Seen, device: Device) -> None:
    """Replace torch.cuda's streams, events and synchronizations by those of the emulated device."""
    cuda: Any = torch.cuda
    cuda.Stream = cuda.ExternalStream = streams.DeviceStream
    cuda.Event = streams.DeviceEvent
    cuda.current_stream = lambda device=None: torch.cpu.current_stream()
    cuda.stream = streams.StreamContext
    cuda.set_stream = streams.set_stream
    kind: Any = streams.DeviceStream
    kind.cuda_stream = kind.stream_id = property(id)
    kind.device, kind.priority_range = torch.device("cuda", 0), CpuStream.priority_range
    for home in (torch.cuda, torch.accelerator):
        seen.let(home, "synchronize", device.synchronize)
    seen.let(torch.accelerator, "current_stream", torch.cpu.current_stream)
    seen.let(torch.accelerator, "set_stream", streams.set_stream)


def _generators(gpus: Gpus, original: Any) -> Any:
    """Return a `torch.Generator` class that makes a CPU generator even for a stand-in GPU."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=Kind):
        def __new__(cls, device: object = "cpu") -> Any:
            return original("cpu" if gpus.means(device) else device)

    return Generator


def _always(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _of_a_modelled_machine() -> dict[str, Callable[..., object]]:
    """Return torch.cuda's functions about memory for a modelled machine; {} for another machine."""
    emulated = machine.current()
    memory = None if emulated is None else emulated.memory
    if memory is None:
        return {}
    limit, name, allocator = memory.model.memory or 0, memory.model.name, memory.allocator
    title = f"{name}, emulated by ddpkit run"
    return {
        "get_device_name": _always(title),
        "get_device_properties": _always(properties(name, limit, title)),
        "mem_get_info": lambda *_, **__: (max(0, limit - memory.live), limit),
        **dict.fromkeys((*IN_USE[:1], "device_memory_used"), lambda *_, **__: memory.live),
        **dict.fromkeys(IN_USE[1:], lambda *_, **__: allocator().reserved),
        f"max_{IN_USE[0]}": lambda *_, **__: memory.most,
        **{f"max_{name}": lambda *_, **__: allocator().most_reserved for name in IN_USE[1:]},
        **dict.fromkeys(RESETS, lambda *_, **__: memory.forget_most()),
        "memory_stats": lambda *_, **__: _stats(memory.live, memory.most, allocator()),
        "empty_cache": lambda *_, **__: allocator().empty_cache(),
    }


def _stats(live: int, most: int, allocator: CachingAllocator | None = None) -> dict[str, int]:
    """Return the result of `torch.cuda.memory_stats`: only the fields that scripts read."""
    allocator = allocator or CachingAllocator()
    stats = {"num_alloc_retries": allocator.retries, "num_ooms": 0}
    for kind in ("allocated", "active", "requested"):
        stats |= {f"{kind}_bytes.all.current": live, f"{kind}_bytes.all.peak": most}
    stats |= {"reserved_bytes.all.current": allocator.reserved}
    return stats | {"reserved_bytes.all.peak": allocator.most_reserved}


def _memory() -> int:
    """Return the size of the host's memory in bytes; 0 if the system does not report it."""
    if not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _Seen:
    """The stand-in GPUs as a script sees them, with the GPU that the script has chosen."""

    def __init__(self, gpus: Gpus, count: int) -> None:
        self._gpus, self._count = gpus, count
        chosen = self

        class device(contextlib.ContextDecorator):  # torch's name of the class
            def __init__(self, device: object) -> None:
                self.idx = chosen._number(device)

            def __enter__(self) -> object:
                self.prev_idx = chosen._gpus.current
                chosen._gpus.current = self.idx
                return self

            def __exit__(self, *_: object) -> None:
                chosen._gpus.current = self.prev_idx

        self.device = device

    def tell(
        self, home: object, name: str, find: Callable[..., object], *, is_zero: bool = False
    ) -> None:
        """Make the function `name` of `home` return `find()` to the script.

        torch's own code still gets the true value.

        is_zero  True to print, at the first call, that the function always returns 0 here
        """
        original: Callable[..., object] | None = getattr(home, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def wrapper(*args: object, **kwargs: object) -> object:
            if is_torchs(sys._getframe(1)):
                return original(*args, **kwargs)
            self._gpus.used()
            if is_zero:
                self._gpus.say_once(f"torch.cuda.{name}() is 0: nothing is on a GPU")
            return find(*args, **kwargs)

        setattr(home, name, wrapper)

    def let(self, home: object, name: str, act: Callable[..., object]) -> None:
        """Replace the function `name` of `home` by `act`, which acts on the emulated GPU."""

        def wrapper(*args: object, **kwargs: object) -> object:
            self._gpus.used()
            return act(*args, **kwargs)

        setattr(home, name, wrapper)

    def set_device(self, device: object) -> None:
        """Choose a GPU. Raises ValueError if this rank's host has no such GPU."""
        self._gpus.used()
        self._gpus.current = self._number(device)

    def current_device(self) -> int:
        """Return the number of the chosen GPU."""
        self._gpus.used()
        return self._gpus.current

    def _number(self, device: Any) -> int:
        if isinstance(device, str):
            device = torch.device(device)
        number = device.index if isinstance(device, torch.device) else device
        if number is None or (isinstance(number, int) and number < 0):
            return self._gpus.current
        if not on_a_gpu(number) or number >= self._count:
            raise ValueError(f"there is no GPU {device}: this rank's host has {self._count} in all")
        return int(number)
