"""Tensors that gloo may still read or write, while the host of a device continues.

gloo moves real values, but a GPU's host does not wait for values. So the rank waits for gloo only
when an operation uses such a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

from ddpkit import torch_private
from ddpkit.protocol.emulation import After
from ddpkit.rank.emulation.clock import Clocks
from ddpkit.rank.emulation.shapes import tensors_in
from ddpkit.rank.record.call import RecordedCall


class Carrying(Protocol):
    """An operation for which gloo may still move bytes."""

    number: int
    call: RecordedCall
    tensors: list[torch.Tensor]  # emptied when gloo has brought the bytes

    def follows(self) -> After:
        """Return the operations for which a stream must wait."""

    def take_bytes(self) -> bool:
        """Wait until gloo has moved the operation's bytes.

        Call this method once all members have posted.
        """


class CarriedTensors:
    """The operations for which gloo may still move bytes, by the storages that they use."""

    def __init__(self, follow: Callable[[After], None], clocks: Clocks) -> None:
        self._follow, self._clocks = follow, clocks
        self._carrying: dict[int, list[Carrying]] = {}  # address of a storage: operations
        self._reduced: set[int] = set()  # DDP's reductions that no stream follows yet, by number

    def add(
        self, tensors: Iterable[torch.Tensor], operation: Carrying, *, reduces: bool = False
    ) -> None:
        """Record the tensors of an operation for which gloo may still move bytes.

        reduces  True for a bucket of DDP's reducer: no stream waits for the bucket before its first
                 use; False if a stream of the device already waits for the operation
        """
        for tensor in tensors:
            self._carrying.setdefault(
                torch_private.storage_id(tensor.untyped_storage()), []
            ).append(operation)
        if reduces:
            self._reduced.add(operation.number)

    @property
    def has_any(self) -> bool:
        """True if gloo may still carry a tensor."""
        return bool(self._carrying)

    def has(self, tensors: Iterable[torch.Tensor]) -> bool:
        """True if gloo may still read or write one of the dense tensors `tensors`."""
        return bool(self._carrying) and any(
            torch_private.storage_id(each.untyped_storage()) in self._carrying for each in tensors
        )

    def touch(self, values: Iterable[object]) -> None:
        """Wait until gloo has finished with the tensors `values`, before an operation uses them."""
        if self._carrying:
            for tensor in tensors_in(values):
                self._touch(tensor)

    def _touch(self, tensor: torch.Tensor) -> None:
        try:
            key = torch_private.storage_id(tensor.untyped_storage())
        except (NotImplementedError, RuntimeError):  # sparse
            return
        if key in self._carrying:
            self.take(list(self._carrying[key]))

    def take_all(self) -> None:
        """Wait until gloo has finished with all tensors."""
        for operations in [list(each) for each in self._carrying.values()]:
            self.take(operations)
        self._carrying.clear()

    def take(self, operations: Iterable[Carrying]) -> None:
        """Wait until gloo has finished with all tensors of the operations."""
        for operation in operations:
            self._forget(operation)
            if operation.number in self._reduced:
                self._reduced.discard(operation.number)
                self._follow(operation.follows())
            with self._clocks.mine.stopped():
                operation.take_bytes()

    def _forget(self, operation: Carrying) -> None:
        """Forget all tensors of an operation, because their addresses may be reused."""
        for tensor in operation.tensors:
            key = torch_private.storage_id(tensor.untyped_storage())
            here = self._carrying.get(key, [])
            if operation in here:
                here.remove(operation)
            if not here:
                self._carrying.pop(key, None)
