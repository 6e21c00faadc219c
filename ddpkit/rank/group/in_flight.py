"""Finds uses of memory owned by the network: of tensors between an operation's post and its wait.

Checks enter `InFlight` for every answer, and `Cluster(strict=True)` enters it for a whole function.
By default `InFlight` is off, because it makes a step of small operations three times as long.
`changed` finds fewer uses and costs almost nothing.

Without `InFlight`, an answer that touches such a tensor goes wrong only by chance: bytes may have
moved already. `InFlight` finds every use: a dispatch mode sees each operation of torch, and the
group reports each call. `InFlight` covers messages and collectives posted while it is entered.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ddpkit import torch_private
from ddpkit.protocol.call import Call
from ddpkit.rank.group.changed import used
from ddpkit.rank.mode import PlainMode
from ddpkit.rank.where import user_call

if TYPE_CHECKING:
    import torch.distributed as dist

# Beginnings of the names of operations that look only at a tensor's shape.
SHAPE_ONLY = ("empty", "new_", "zeros_like", "ones_like", "full_like", "rand", "sym_", "is_")
ASYNCHRONOUS = {"send": "isend", "recv": "irecv"}


class TouchedInFlight(RuntimeError):
    """Raised if code uses a tensor between the post of an operation and its wait."""

    def __init__(self, how: str, what: Call, dropped: bool) -> None:
        self.how, self.what, self.dropped = how, what, dropped
        super().__init__(f"{how} a tensor in flight: {started(what)} still uses the tensor")


def started(what: Call) -> str:
    """Return the name and the line of an operation, such as "the isend in line 3"."""
    return f"the {ASYNCHRONOUS.get(what.op, what.op)} in line {what.where[1]}"


@dataclass(eq=False)
class Owned:
    """An operation under way, and the memory that it reads and writes."""

    what: Call
    work: weakref.ref[dist.Work]
    reads: list[torch.Tensor]
    writes: list[torch.Tensor]

    @property
    def dropped(self) -> bool:
        """True if no code has kept the work, so that no code can wait for it."""
        return self.work() is None


class InFlight(PlainMode):
    """While entered, raises `TouchedInFlight` for forbidden uses of tensors in flight."""

    def __init__(self, rank: int, *, users_only: bool = False) -> None:
        """Watch the works of `rank`; with `users_only`, ignore works of torch's own code."""
        torch_private.require(torch_private.Feature.CHECKS)
        super().__init__()
        self._rank, self._users_only = rank, users_only
        self._owned: dict[int, Owned] = {}  # work's number -> its tensors
        self._numbers: weakref.WeakKeyDictionary[dist.Work, int] = weakref.WeakKeyDictionary()
        self._counter = itertools.count(1)  # safe for threads that post at the same time
        self._thread = threading.get_ident()

    def posted(self, work: dist.Work, what: Call, payload: object) -> None:
        """Record an operation. Raises TouchedInFlight if an earlier one still uses its tensors."""
        if self._users_only and not what.is_users:
            return
        reads, writes = used(what, payload, self._rank)
        for touched in reads:
            self._refuse(touched, "the code sends", ours="writes")
        for touched in writes:
            self._refuse(touched, "the code receives into", ours="both")
        number = next(self._counter)
        self._owned[number] = Owned(what, weakref.ref(work), reads, writes)
        self._numbers[work] = number

    def over(self, work: dist.Work) -> None:
        """Record that code has waited for a work, or has taken the work's future."""
        self._owned.pop(self._numbers.pop(work, 0), None)

    def left(self) -> list[Call]:
        """Return the operations for which no code has waited, in the order of their posts."""
        return [each.what for each in list(self._owned.values())]

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        # gloo's threads have the modes of the posting thread. As the network, they may touch the
        # network's tensors. Nor may gloo's threads raise: the waiting thread would get NULL.
        mine = threading.get_ident() == self._thread
        if mine and self._owned and not func.is_view:
            for value, changes in _arguments(func, args, kwargs):
                how = "the code changes" if changes else "the code reads"
                self._refuse(value, how, ours="both" if changes else "writes")
        return func(*args, **kwargs)

    def _refuse(self, touched: torch.Tensor, how: str, ours: str) -> None:
        for each in list(self._owned.values()):  # a callback's thread may post meanwhile
            owned = each.writes + each.reads if ours == "both" else each.writes
            if any(_overlap(touched, tensor) for tensor in owned):
                returned = not user_call(sys._getframe())[0][0]
                raise TouchedInFlight(how, each.what, each.dropped or returned)


def _arguments(
    func: Any, args: tuple[object, ...], kwargs: dict[str, object]
) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield each tensor that an operation reads or writes, with True if the tensor is written."""
    if func.namespace != "aten" or torch_private.schema_of(func).name.split("::")[-1].startswith(
        SHAPE_ONLY
    ):
        return
    for number, declared in enumerate(torch_private.schema_of(func).arguments):
        value = kwargs.get(declared.name, args[number] if number < len(args) else None)
        changes = declared.alias_info is not None and declared.alias_info.is_write
        for leaf in torch_private.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield leaf, changes


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two contiguous tensors share memory; False for tensors with gaps."""
    if not (one.numel() and other.numel() and one.is_contiguous() and other.is_contiguous()):
        return False
    if one.device != other.device or one.layout is not torch.strided:
        return False
    a, b = one.data_ptr(), other.data_ptr()
    return a < b + other.nbytes and b < a + one.nbytes
