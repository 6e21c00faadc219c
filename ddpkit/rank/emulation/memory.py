"""The memory of a modelled machine: the bytes of a rank's live storages, over emulated time.

A storage counts from the operation that makes it, or from the first operation that uses it, until
the storage is freed. A storage counts once, however many tensors and views share it, with the bytes
that the program requested. The sum is neither the process's memory nor an allocator's: the sum
contains no rounding, no cache, and no objects of Python.

The use of a storage is often known only later: a tensor is a gradient once `.grad` holds it. So a
storage has a kind that may change, and counts under its last kind for all its life.

A weak reference reports that a storage is freed, in the thread that drops the last reference.
gloo's threads may be late: a storage that they free counts as free since the end of the wait.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpkit import torch_private
from ddpkit.machine import MachineModel
from ddpkit.protocol.raised import MemoryFull
from ddpkit.rank.emulation.allocator import CachingAllocator
from ddpkit.rank.emulation.clock import Clocks
from ddpkit.rank.emulation.held import (
    DEVICE,
    HOST,
    UNDECIDED,
    BytesInUse,
    Held,
    Reserved,
    dense_parts,
    dense_tensors,
    full_text,
    levels,
    living_parameters,
)
from ddpkit.rank.record.clock import Moment
from ddpkit.trace import MEMORY_KINDS, MemoryLevel

MANY = 200_000  # changes that are kept
Read = Callable[[Moment], int]


class Memory:
    """The live storages of a rank, and the bytes in use at each moment so far."""

    def __init__(self, clocks: Clocks, rank: int, model: MachineModel) -> None:
        self._clocks, self._rank, self._model = clocks, rank, model
        self._device = BytesInUse(model.memory)  # holds all storages, unless `apart`
        self._host = BytesInUse(None if model.host is None else model.host.memory)
        self._reserved = Reserved(model.memory)
        self.stream: Callable[[], int] = int  # returns the number of the current stream
        self.apart = False  # True if the host's memory counts separately, in `_host`
        self._held: dict[int, Held] = {}  # address of a storage -> the storage
        self._changes: list[tuple[Moment, Held, int]] = []
        self._base = dict.fromkeys(MEMORY_KINDS, 0)  # sums of the changes that are no longer kept
        self._seen_parameters: dict[int, weakref.ref[torch.Tensor]] = {}
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.steps = False  # True while an optimizer steps
        self._lock = threading.RLock()  # gloo's threads free tensors that they have carried

    @property
    def model(self) -> MachineModel:
        """The modelled machine."""
        return self._model

    @property
    def live(self) -> int:
        """The bytes in use; only the device's bytes, if the host's memory is counted separately."""
        return self._device.live

    @property
    def most(self) -> int:
        """The maximum of the bytes in use since `forget_most`."""
        return self._device.most

    @property
    def most_of_host(self) -> int:
        """The maximum of the bytes in use in the host's memory, if counted separately."""
        return self._host.most

    def allocator(self) -> CachingAllocator:
        """Return torch's caching allocator after all requests so far."""
        with self._lock:
            self._reserved.follow(self._changes)
            return self._reserved.allocator

    def forget_most(self) -> None:
        """Reset the maximum to the bytes in use now, and that of the reserved bytes likewise."""
        self._device.most = self._device.live
        self._reserved.allocator.most_reserved = self.allocator().reserved

    def tell_apart(self) -> None:
        """Count the host's storages separately from now on, including all that already exist."""
        with self._lock:
            if self.apart:
                return
            self.apart = True
            for room in self._device, self._host:
                room.live = sum(held.nbytes for held in self._in(room))
                room.most = room.live

    def _room(self, held: Held) -> BytesInUse:
        return self._host if self.apart and held.place != DEVICE else self._device

    def _in(self, room: BytesInUse) -> list[Held]:
        return [held for held in self._held.values() if self._room(held) is room]

    # Storages, as operations make and see them

    def see(self, values: Iterable[object], place: str = UNDECIDED) -> None:
        """Record the storages of tensors and of tensors in lists; new storages lie in `place`."""
        for value in values:
            if isinstance(value, torch.Tensor):
                self._see(value, place)
            elif isinstance(value, list | tuple):
                self.see(value, place)

    def _see(self, tensor: torch.Tensor, place: str) -> None:
        if type(tensor) is torch.nn.Parameter and id(tensor) not in self._seen_parameters:
            self._note_parameter(tensor)
            return
        held = self._hold(tensor, place)
        moved = type(tensor) is torch.nn.Parameter  # perhaps moved, by `.to(dtype)` or `.cuda()`
        if moved and held is not None and held.kind == "activations":
            held.kind = "parameters"

    def _hold(self, tensor: torch.Tensor, place: str = UNDECIDED) -> Held | None:
        """Return the entry of a tensor's storage; None for a tensor without a storage."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse
            return None
        key = torch_private.storage_id(storage)
        held = self._held.get(key)
        if held is not None:
            if held.nbytes != storage.nbytes():
                self._change(held, storage.nbytes() - held.nbytes)
            return held
        if tensor.is_meta:
            return None
        held = self._held[key] = Held(0, place=place)
        held.ref = weakref.ref(storage, lambda _: self._freed(key, held))
        del storage
        self._change(held, tensor.untyped_storage().nbytes())
        return held

    def place_of(self, tensor: torch.Tensor) -> str:
        """Return the place of a tensor's storage; a question records no new storage."""
        try:
            key = torch_private.storage_id(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError):  # sparse
            return UNDECIDED
        held = self._held.get(key)
        return UNDECIDED if held is None else held.place

    def place(self, tensor: torch.Tensor, place: str) -> None:
        """Record the place of a tensor's storage."""
        held = self._hold(tensor, place)
        if held is not None and held.place != place:
            with self._lock:
                self._room(held).change(-held.nbytes)
                held.place = place
                self._room(held).change(held.nbytes)

    def give_to_host(self, tensor: torch.Tensor) -> None:
        """Record that a new tensor lies in the host's memory."""
        if torch_private.storage_id(tensor.untyped_storage()) not in self._held:
            self._hold(tensor, HOST)

    def _freed(self, key: int, held: Held) -> None:
        with self._lock:
            if self._held.get(key) is held:
                del self._held[key]
            by_gloo = not self._clocks.is_mine and held.collected_ns is not None
            self._change(held, -held.nbytes, held.collected_ns if by_gloo else None)

    def _change(self, held: Held, by: int, at: int | None = None) -> None:
        """Record that a storage has grown or shrunk by `by` bytes."""
        with self._lock:
            if not held.nbytes:
                held.stream = self.stream()
            held.nbytes += by
            self._room(held).change(by)
            if by:
                moment = self._clocks.moment() if at is None else at
                self._changes.append((moment, held, by))
            if len(self._changes) > 2 * MANY:
                self._forget()

    def overflow(self) -> torch.OutOfMemoryError | None:
        """Return the error for a request that did not fit; None if all requests fit."""
        room = self._device if self._device.full_by else self._host
        if not room.full_by:
            return None
        full = self._what_fills_it(room)
        room.full_by = 0  # only now, because `_what_fills_it` may find more storages
        error = torch.OutOfMemoryError(full_text(full, of_host=room is self._host))
        error.full = full  # type: ignore[attr-defined]
        return error

    def _forget(self) -> None:
        """Replace the oldest changes by their sums, to save memory."""
        self.allocator()
        self._reserved.forget(MANY)
        for _, held, by in self._changes[:MANY]:
            if self._room(held) is self._device:
                self._base[held.kind] += by
        del self._changes[:MANY]

    def _what_fills_it(self, room: BytesInUse) -> MemoryFull:
        assert room.limit is not None
        live, by = room.live, room.full_by
        for parameter in living_parameters():
            self._note_parameter(parameter)
        self.note_gradients()
        for optimizer in self._optimizers:
            self._note_optimizer(optimizer)
        unseen = max(0, room.live - live)  # older storages, such as an optimizer's counters
        parts = dict.fromkeys(MEMORY_KINDS, 0)
        for held in self._in(room):
            parts[held.kind] += held.nbytes
        alive = {kind: nbytes for kind, nbytes in parts.items() if nbytes}
        return MemoryFull(
            *(self._model.name, self._rank, room.limit),
            *(room.full_with - by + unseen, by, alive),
        )

    # Kinds of storages

    def _note(self, tensor: object, kind: str, *, over: tuple[str, ...] = ("activations",)) -> None:
        """Set the kind of a tensor's storage to `kind`, if the present kind is one of `over`."""
        local = torch_private.local_part(tensor)  # the local part of a DTensor
        if isinstance(local, torch.Tensor):
            held = self._hold(local)
            if held is not None and held.kind in over:
                held.kind = kind

    def _note_parameter(self, parameter: torch.Tensor) -> None:
        key = id(parameter)
        self._seen_parameters[key] = weakref.ref(
            parameter, lambda _: self._seen_parameters.pop(key, None) and None
        )
        self._note(parameter, "parameters", over=MEMORY_KINDS)

    def _swapping(self, original: Callable[..., object]) -> Callable[..., object]:
        """Return a `swap_tensors` that first drops weak references to the tensors.

        torch refuses to swap tensors that have weak references.
        """

        @functools.wraps(original)
        def swap(one: torch.Tensor, other: torch.Tensor) -> None:
            known = [
                tensor
                for tensor in (one, other)
                if self._seen_parameters.pop(id(tensor), None) is not None
            ]
            original(one, other)
            for tensor in known:
                self._note_parameter(tensor)

        return swap

    def carried(self, values: Iterable[object]) -> list[Held]:
        """Return the entries of the tensors that an operation carries."""
        return [
            held for tensor in dense_tensors(values) if (held := self._hold(tensor)) is not None
        ]

    @staticmethod
    def tensors_in(values: Iterable[object]) -> list[torch.Tensor]:
        """Return the dense tensors among values, and those in lists among values."""
        return list(dense_tensors(values))

    def note_reduced(self, *values: object) -> None:
        """Record a bucket or a gradient that all ranks reduce while a backward pass runs."""
        for tensor in dense_tensors(values):
            self._note(tensor, "buckets")

    def note_gradients(self) -> None:
        """Record the storages of the parameters' gradients.

        A gradient that is a part of a bucket's storage keeps the kind of the bucket. A gradient
        that fills a whole storage is the same tensor that the reducer sent, and counts as a
        gradient.
        """
        for known in list(self._seen_parameters.values()):
            parameter = known()
            gradient = None if parameter is None else parameter.grad
            if gradient is None:
                continue
            for part in dense_parts(torch_private.local_part(gradient)):
                whole = part.untyped_storage().nbytes() == part.numel() * part.element_size()
                self._note(part, "gradients", over=("activations", "buckets")[: 1 + whole])

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self.steps = False
        self._note_optimizer(optimizer)

    def _note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                self._note(value, "optimizer")

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self.steps = True
        self._optimizers.add(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._seen_parameters:
                    self._note_parameter(parameter)
        self.note_gradients()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A block in which the storages of this process are watched."""
        with ExitStack() as undo:
            for handle in (
                register_module_parameter_registration_hook(
                    lambda _, __, parameter: self._registered(parameter)
                ),
                register_module_buffer_registration_hook(
                    lambda _, __, buffer: self._note(buffer, "parameters")
                ),
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ):
                undo.callback(handle.remove)
            self._replace(undo, torch.UntypedStorage, "resize_", self._resizing)
            self._replace(undo, torch.utils, "swap_tensors", self._swapping)
            self._replace(undo, torch.distributed.GradBucket, "buffer", self._of_bucket)
            yield

    @staticmethod
    def _replace(undo: ExitStack, home: object, name: str, made: Callable[..., object]) -> None:
        original = getattr(home, name)
        undo.callback(setattr, home, name, original)
        setattr(home, name, made(original))

    def _registered(self, parameter: object) -> None:
        if isinstance(parameter, torch.Tensor):
            self._note_parameter(parameter)

    def _resizing(self, original: Callable[..., object]) -> Callable[..., object]:
        def resize_(storage: torch.UntypedStorage, nbytes: object) -> object:
            """Resize a storage, and count the changed bytes.

            FSDP frees gathered parameters in this way. FSDP runs no operation and drops no tensor,
            so no other hook of this class sees the change.
            """
            result = original(storage, nbytes)
            held = self._held.get(torch_private.storage_id(storage))
            if held is not None:
                self._change(held, storage.nbytes() - held.nbytes)
            return result

        return resize_

    def _of_bucket(self, original: Callable[..., object]) -> Callable[..., object]:
        def buffer(bucket: object) -> object:
            tensor = original(bucket)
            self.note_reduced(tensor)
            return tensor

        return buffer

    # Levels of the past

    def levels(self, read: Read) -> list[MemoryLevel]:
        """Return the bytes in use from each moment on; `read` converts a moment to ns.

        Storages can be made and freed while no time passes, so a moment may have two levels.
        """
        with self._lock:
            changes = sorted(
                (
                    (read(moment), held, by)
                    for moment, held, by in self._changes
                    if self._room(held) is self._device
                ),
                key=lambda change: change[0],
            )
        return levels(changes, dict(self._base))
