"""The device's memory and the host's memory, for a script that is told that it has a GPU.

A real GPU has a memory of its own. A script's tensor lies there if the script puts the tensor there
(`.cuda()`, `device="cuda"`, `map_location`), and so does the result of each operation on such a
tensor. A tensor that the script makes without a device lies in the host's memory.

torch's own code makes tensors by `device=self.device`, and that device is the CPU here. Such a
tensor has no place at first, and counts as the host's. The first operation that uses it together
with a tensor on the device puts the tensor on the device, and so does a collective.

It would be simpler to count every tensor as the device's, as in a Cluster. But then a data set in
the host's memory would fill the GPU, its preparation would be charged as kernels, and a copy to the
GPU would cost nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ddpkit import torch_private
from ddpkit.rank.emulation.device import Device
from ddpkit.rank.emulation.held import DEVICE, HOST, PINNED, UNDECIDED
from ddpkit.rank.emulation.memory import Memory
from ddpkit.rank.emulation.meter import Meter, words
from ddpkit.simulate.engine.device import DOWN, UP

if TYPE_CHECKING:
    from collections.abc import Callable

# Operations that may have tensors of both memories: copies, and indices in the host's memory.
_COPIES = words("copy_ _foreach_copy_")
_BOTH = _COPIES | words(
    "_to_copy index index_put index_put_ _index_put_impl_ _unsafe_index "
    "_unsafe_index_put _pack_padded_sequence set_ split_with_sizes_copy"
)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A copy over the bus: up to the device, or down to the host."""

    way: str  # UP or DOWN
    pinned: bool  # the host's tensor lies in pinned memory
    non_blocking: bool
    to: str  # the place of the copy


class _BlocksOfThread(threading.local):
    """The state of a thread: a checkpoint's thread copies while the main thread computes."""

    made: tuple[str, bool] = (UNDECIDED, False)  # a place; named by the script?
    crossing: Crossing | None = None


class Places:
    """Decides the places of a script's tensors, and charges copies and the host's work."""

    def __init__(self, memory: Memory, device: Device, meter: Meter, speed: float) -> None:
        self._memory, self._device, self._meter = memory, device, meter
        self._machine, self._speed = memory.model, speed
        host = memory.model.host
        self._host = None if host is None else Meter(host, speed)
        self._mine = _BlocksOfThread()
        device.reads = self.read

    # Called by the replaced functions of torch that the script calls

    def tell_apart(self) -> None:
        """Count the host's memory separately from the device's, because the script uses a GPU."""
        self._memory.tell_apart()

    @contextmanager
    def making(self, place: str, *, named: bool) -> Iterator[None]:
        """A block in which new tensors are placed in `place`.

        named  True if the script names the place: then tensors that are made from other tensors,
               such as `zeros_like(x)`, lie there too
        """
        before, self._mine.made = self._mine.made, (place, named)
        try:
            yield
        finally:
            self._mine.made = before

    def is_on_device(self, tensor: torch.Tensor) -> bool:
        """True if a tensor lies on the device."""
        return self._memory.place_of(tensor) == DEVICE

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """True if a tensor lies in pinned memory of the host."""
        return self._memory.place_of(tensor) == PINNED

    def place(self, tensor: torch.Tensor, place: str) -> None:
        """Record the place of a tensor."""
        self._memory.place(tensor, place)

    def place_beside(self, other: torch.Tensor, tensors: Iterable[torch.Tensor]) -> None:
        """Put tensors into the place of another tensor."""
        for tensor in tensors:
            self.place(tensor, self._memory.place_of(other))

    def take(self, tensor: torch.Tensor, *, non_blocking: bool = False) -> torch.Tensor:
        """Return a copy, on the device, of a tensor in the host's memory."""
        pinned = self.is_pinned(tensor)
        return self._copied(tensor, Crossing(UP, pinned, non_blocking, DEVICE))

    def bring(self, tensor: torch.Tensor, *, non_blocking: bool = False) -> torch.Tensor:
        """Return a copy, in the host's memory, of a tensor on the device.

        The copy is pinned if `non_blocking`.
        """
        to = PINNED if non_blocking else HOST
        return self._copied(tensor, Crossing(DOWN, non_blocking, non_blocking, to))

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor, copied if necessary, in pinned memory.

        Raises RuntimeError for a tensor on the device.
        """
        if self.is_on_device(tensor):
            raise RuntimeError(
                f"cannot pin '{tensor.type().replace('torch.', 'torch.cuda.')}' only dense CPU "
                "tensors can be pinned"
            )
        if self.is_pinned(tensor):
            return tensor
        made = tensor.clone()
        self.place(made, PINNED)
        return made

    def _copied(self, tensor: torch.Tensor, crossing: Crossing) -> torch.Tensor:
        self._mine.crossing = crossing
        try:
            made = tensor.clone()
        finally:
            self._mine.crossing = None
        self.place(made, crossing.to)
        return made

    # Called by the dispatch mode, for each operation

    @property
    def of_data(self) -> str:
        """The place of a tensor that a call makes from Python numbers, lists or NumPy arrays."""
        return self._mine.made[0]

    def place_of(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> str:
        """Return the place, device or host, that executes an operation and holds its results.

        If the operation works on the device, its tensors without a place are put there. Raises
        RuntimeError, with torch's message, if the operation has tensors of both memories.
        """
        if self._mine.crossing is not None:
            return self._mine.crossing.to
        undecided, on_host, on_device = [], None, False
        tensors = self._memory.tensors_in((*args, *kwargs.values()))
        for tensor in tensors:
            place = self._memory.place_of(tensor)
            if place == DEVICE:
                on_device = True
            elif place == UNDECIDED:
                undecided.append(tensor)
            elif tensor.dim():
                on_host = tensor
        made, named = self._mine.made
        if named or not tensors:
            return made
        if not on_device:
            return UNDECIDED if on_host is None else HOST
        name = torch_private.schema_of(func).name.removeprefix("aten::")
        if on_host is not None and name not in _BOTH:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda and cpu! (in aten::{name}: a tensor of shape {tuple(on_host.shape)} lies "
                "in the memory of the host)"
            )
        if name in _COPIES:  # a source without a place may come from a file, and stays undecided
            written = self._memory.tensors_in(args[:1])
            undecided = [each for each in undecided if any(each is to for to in written)]
        for tensor in undecided:
            self._memory.place(tensor, DEVICE)
        return DEVICE

    def first_of_host(self, values: Iterable[object]) -> torch.Tensor | None:
        """Return the first tensor of a call that is known to lie in the host's memory, or None."""
        if self._memory.apart:
            for tensor in self._memory.tensors_in(values):
                if self._memory.place_of(tensor) in (HOST, PINNED):
                    return tensor
        return None

    def any_of_device(self, values: Iterable[object]) -> bool:
        """True if a tensor of a call is known to lie in the device's memory."""
        tensors = self._memory.tensors_in(values) if self._memory.apart else ()
        return any(self._memory.place_of(tensor) == DEVICE for tensor in tensors)

    def communicated(self, values: Iterable[object]) -> None:
        """Place the tensors of a call to NCCL on the device, if they have no place yet."""
        if not self._memory.apart:
            return
        for tensor in self._memory.tensors_in(values):
            if self._memory.place_of(tensor) == UNDECIDED:
                self._memory.place(tensor, DEVICE)

    def charge(
        self,
        place: str,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        out: Any,
    ) -> bool:
        """Charge the time of a copy over the bus, or of the host's work.

        Return False, without a charge, if the device executes the operation.
        """
        if not self._memory.apart:
            return False
        crossing = self._mine.crossing or self._copy_between(func, args, kwargs)
        if crossing is not None:
            self._cross(crossing, out)
            return True
        if place == DEVICE:
            return False
        if self._meter.is_work(func):
            work_ns = 0 if self._host is None else self._host.ns(func, args, kwargs, out)
            self._device.spend(self._meter.launch_ns + work_ns)
        return True

    def _copy_between(
        self, func: object, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> Crossing | None:
        """Return the copy over the bus that `to.copy_(source)` makes, or None."""
        if func is not torch.ops.aten.copy_.default or not isinstance(args[1], torch.Tensor):
            return None
        to, source = map(self._memory.place_of, args[:2])
        if (to == DEVICE) == (source == DEVICE):
            return None
        non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        way, of_host = (UP, source) if to == DEVICE else (DOWN, to)
        return Crossing(way, of_host == PINNED, non_blocking, to)

    def _cross(self, crossing: Crossing, out: torch.Tensor) -> None:
        """Charge a copy over the bus.

        As with CUDA, the host waits unless the memory is pinned and the copy is non-blocking.
        Before a copy of pageable memory to the device, the driver waits for the stream.
        """
        if crossing.way == UP and not crossing.pinned:
            self._device.wait(why="copy")
        nbytes = out.numel() * out.element_size()
        ns = 0 if self._meter.free else self._machine.copy_ns(nbytes, pinned=crossing.pinned)
        memory = "pinned" if crossing.pinned else "pageable"
        self._device.copy(
            self._meter.launch_ns, round(ns / self._speed), crossing.way, nbytes, memory
        )
        if not (crossing.pinned and crossing.non_blocking):
            self._device.wait(why="copy")

    def read(self, tensor: torch.Tensor) -> bool:
        """Charge the host's read of a tensor's values.

        Return False, without a charge, if the memories are not counted separately. Values on the
        device are copied to the host first. Values on the host need no wait.
        """
        if not self._memory.apart:
            return False
        if self.is_on_device(tensor):
            self._cross(Crossing(DOWN, pinned=False, non_blocking=False, to=HOST), tensor)
        return True
