"""What the network owns: tensors of works that were posted and not waited for.

Whether an answer that touches one of them goes wrong is luck: bytes may have moved already. Under
`InFlight` it never is luck, for it sees each operation of torch (a dispatch mode) and each call
of the group. It holds for messages and collectives that are posted while it is entered.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ddpkit import torch_private
from ddpkit.protocol.call import Call
from ddpkit.rank.group import arguments
from ddpkit.rank.mode import PlainMode
from ddpkit.rank.where import user_call

IN_PLACE = ("all_reduce", "all_reduce_coalesced", "reduce", "recv")
# Operations that look at a tensor's shape and not into it.
SHAPE_ONLY = ("empty", "new_", "zeros_like", "ones_like", "full_like", "rand", "sym_", "is_")
ASYNCHRONOUS = {"send": "isend", "recv": "irecv"}


class TouchedInFlight(RuntimeError):
    """A tensor was used between the post of an operation and its wait."""

    def __init__(self, how: str, what: Call, dropped: bool) -> None:
        self.how, self.what, self.dropped = how, what, dropped
        super().__init__(f"{how} a tensor in flight: {started(what)} still uses the tensor")


def started(what: Call) -> str:
    """ "the isend in line 3", "the all_reduce in line 7"."""
    return f"the {ASYNCHRONOUS.get(what.op, what.op)} in line {what.where[1]}"


@dataclass(eq=False)
class Owned:
    """An operation that is under way, and the memory that it reads and writes."""

    what: Call
    work: weakref.ref[Any]
    reads: list[torch.Tensor]
    writes: list[torch.Tensor]

    @property
    def dropped(self) -> bool:
        """Whether nobody has kept the work, so that nobody can wait for it."""
        return self.work() is None


class InFlight(PlainMode):
    """While it is entered, raises `TouchedInFlight` for what must not be done with such tensors."""

    def __init__(self, rank: int) -> None:
        torch_private.require(torch_private.Feature.CHECKS)
        super().__init__()
        self._rank = rank
        self._owned: dict[int, Owned] = {}  # by number
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next = 0
        self._thread = threading.get_ident()

    def posted(self, work: Any, what: Call, payload: Any) -> None:
        """Note an operation on tensors, which must not be under way in others' hands."""
        reads, writes = _used(what, payload, self._rank)
        for touched in reads:
            self._refuse(touched, "it sends", ours="writes")
        for touched in writes:
            self._refuse(touched, "the code receives into", ours="both")
        self._next += 1
        self._numbers[work] = self._next
        self._owned[self._next] = Owned(what, weakref.ref(work), reads, writes)

    def over(self, work: Any) -> None:
        """Note that a work was waited for, or handed on as a future."""
        self._owned.pop(self._numbers.pop(work, 0), None)

    def left(self) -> list[Call]:
        """The operations that nobody has waited for, in the order in which they were posted."""
        return [each.what for each in list(self._owned.values())]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # gloo's threads have the modes of who has posted. They are the network, and may touch what
        # it owns; nor can an exception leave them: the waiting thread would get none, but NULL.
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


def _used(what: Call, payload: Any, rank: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors that an operation reads only, and those that it writes."""
    tensors = list(arguments.tensors(payload))
    if what.op == "send" or (what.op == "broadcast" and what.root == rank):
        return tensors, []
    if what.op in IN_PLACE or what.op == "broadcast":
        return [], tensors
    return list(arguments.tensors(payload[1:])), list(arguments.tensors(payload[:1]))


def _arguments(func: Any, args: tuple[Any, ...], kwargs: Any) -> Iterator[tuple[Any, bool]]:
    """The tensors that an operation looks into, and whether it changes them."""
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
    """Whether two tensors share memory; of those with gaps it is not said."""
    if not (one.numel() and other.numel() and one.is_contiguous() and other.is_contiguous()):
        return False
    if one.device != other.device or one.layout is not torch.strided:
        return False
    a, b = one.data_ptr(), other.data_ptr()
    return a < b + other.nbytes and b < a + one.nbytes
