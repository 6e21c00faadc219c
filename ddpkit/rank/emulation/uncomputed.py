"""Ranks without values: each operation is counted, and only small operations are computed.

The problem. A modelled machine needs the shapes of an operation, and not its values. A laptop can
compute the values only for models of up to some ten million parameters.

It would be simpler to run the program on torch's fake tensors. But DDP's reducer and gloo are C++
that uses addresses of data. So the result of a large operation is a tensor of the CPU that no code
touches: `torch.empty` of gigabytes takes address space, and no memory. torch's fake tensors give
the result's shape, once for each signature. Views and allocations run as they are.

An operation is computed if all its tensors together are small, so counters, masks, meshes, learning
rates and metadata have values. If a program reads a value that was not computed, the program gets
zero: a small result of a large operation is made of zeros, and a small view of a large storage is
filled with zeros before an operation reads the view. A mark in the storage
(`protocol.not_computed`) shows that values were not computed. The results of small operations
inherit this mark.

What must hold: a result has the shape, strides and dtype of a computed result, so that times and
bytes are those of a run with values. What would break it: a C++ extension without a fake kernel,
which runs as usual, and may read the untouched memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

import torch

from ddpkit import torch_private
from ddpkit.protocol.not_computed import (
    is_large,
    is_marked,
    mark,
    most_computed,
    zero_if_untouched,
)
from ddpkit.rank.callers import is_torchs, module_of, sends_an_object
from ddpkit.rank.emulation.meter import words
from ddpkit.rank.emulation.shapes import (
    TRUE_OF_ZEROS,
    ResultShapes,
    Shapes,
    make,
    name_of,
    of_zeros,
    tensors_in,
)
from ddpkit.rank.where import user_call
from ddpkit.text import size
from ddpkit.torch_private import schema_of

PR_SET_THP_DISABLE, M_MMAP_THRESHOLD = 41, -3  # <sys/prctl.h>, <malloc.h>
MAPPED = 1 << 17  # an allocation of more bytes gets separate pages
# Operations that allocate, or alias an argument, and read no element.
_AS_IT_IS = words(
    "empty new_empty empty_like empty_strided new_empty_strided empty_permuted resize_ "
    "resize_as_ set_ detach lift lift_fresh alias _unsafe_view _reshape_alias is_same_size "
    "is_pinned record_stream _assert_tensor_metadata"
)
_FUNCTIONAL = "_c10d_functional"
_ROOMS_AS_THEY_ARE = ("c10d", _FUNCTIONAL, f"{_FUNCTIONAL}_autograd", "prim", "profiler")
# C++ implements these as a copy of the input, and the operation with "_" at the end of its name.
_IN_PLACE = words("all_reduce all_reduce_coalesced broadcast")
_CONTIGUOUS = words(
    "all_gather_into_tensor all_gather_into_tensor_coalesced reduce_scatter_tensor "
    "reduce_scatter_tensor_coalesced all_to_all_single"
)  # for these, C++ copies an argument that is not contiguous
_ASSERTS = words("_assert_async _functional_assert_async")
# Modules that may stand between a read of a value and the line that reads it.
_BETWEEN = (
    *("ddpkit.", torch_private.WRAPS_MODES, f"{torch_private.COMPILER}."),
    torch.Tensor.__format__.__module__,
)
_CLONE = torch.ops.aten.clone.default
_INDEX = torch.ops.aten.index.Tensor  # the result's shape depends on values if a mask is given
_MASKED_SELECT = torch.ops.aten.masked_select.default
_REFUSED = "can't allocate memory"  # a part of torch's error


class NotComputedError(RuntimeError):
    """Raised if the shape of a result depends on values that were not computed."""


class AddressSpaceRefusedError(RuntimeError):
    """Raised if the system refuses the address space for a large tensor without values."""


class _Way(Enum):
    AS_IT_IS = auto()
    COPIES = auto()  # copies its input, then communicates
    READS = auto()  # gives a Python value
    SHAPES = auto()  # the shape of the result may depend on values
    ASSERTS = auto()
    COMPUTES = auto()


class _Written(NamedTuple):
    """An argument that an operation writes in place."""

    place: int
    name: str
    is_out: bool

    def of(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        return args[self.place] if self.place < len(args) else kwargs.get(self.name)


@cache
def _way(func: Any) -> _Way:
    room, _, name = schema_of(func).name.partition("::")
    if room == _FUNCTIONAL and name in (*_IN_PLACE, *_CONTIGUOUS):
        return _Way.COPIES
    if func.is_view or room in _ROOMS_AS_THEY_ARE or torch.Tag.inplace_view in func.tags:
        return _Way.AS_IT_IS
    if room == "aten" and name in _AS_IT_IS:
        return _Way.AS_IT_IS
    if name in _ASSERTS:
        return _Way.ASSERTS
    if torch.Tag.data_dependent_output in func.tags:
        return _Way.READS
    if torch.Tag.dynamic_output_shape in func.tags:
        return _Way.SHAPES
    return _Way.COMPUTES


@cache
def _written(func: Callable[..., object]) -> tuple[_Written, ...]:
    return tuple(
        _Written(place, argument.name, argument.is_out)
        for place, argument in enumerate(schema_of(func).arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


@cache
def _returned(func: Callable[..., object]) -> tuple[int | None, ...]:
    """Return an index for each result of an operation: that of the written argument it returns.

    The indices count only arguments that the operation writes. The index of a new tensor is None.
    """
    schema, found = schema_of(func), []
    sets = [
        set(argument.alias_info.before_set)
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    for result in schema.returns:
        alias = None if result.alias_info is None else set(result.alias_info.before_set)
        found.append(next((i for i, each in enumerate(sets) if alias and alias & each), None))
    return tuple(found)


class Uncomputed:
    """Executes the operations of a rank without values.

    `reads` counts, for each line of the user's code, the reads of values that were not computed.
    """

    def __init__(self) -> None:
        self.reads: Counter[tuple[str, int]] = Counter()
        self._results = ResultShapes()
        _leave_memory_untouched()

    def run(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Return an operation's result; compute it only if the operation's tensors are small.

        Raises NotComputedError if a shape depends on values that were not computed, and
        AddressSpaceRefusedError if the system refuses the addresses of a large tensor.
        """
        try:
            return self._run(func, args, kwargs)
        except RuntimeError as error:
            if _REFUSED not in str(error):
                raise
            nbytes = next((int(word) for word in str(error).split() if word.isdigit()), 0)
            raise AddressSpaceRefusedError(
                f"this computer refuses to reserve {size(nbytes)} of address space for a tensor "
                "without values. Such a tensor takes no memory: allow the reservation by "
                "`sudo sysctl vm.overcommit_memory=1` and `ulimit -v unlimited`"
            ) from None

    def _run(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        way = _way(func)
        if way is _Way.AS_IT_IS:
            return func(*args, **kwargs)
        if way is _Way.COPIES:
            return self._communicate(func, args, kwargs)
        given = [*tensors_in((*args, *kwargs.values()))]
        if any(each.layout is not torch.strided or each.is_meta for each in given):
            return func(*args, **kwargs)
        if way is not _Way.COMPUTES:
            unknown = any(map(is_marked, given))
            if way is _Way.ASSERTS and unknown:
                return None
            if way is _Way.READS and unknown:
                return self._read_values(func, args, kwargs, given)
            if way is _Way.SHAPES and func is _MASKED_SELECT:
                tensor, mask = torch.broadcast_tensors(*args)  # type: ignore[no-untyped-call]
                func, args = _INDEX, (tensor, [mask])
            if way is not _Way.SHAPES or (func is not _INDEX and not unknown):
                return func(*args, **kwargs)
            if func is not _INDEX:
                raise _depends_on_values(func)
            args = (args[0], _without_masks(args[1]))
            given = [*tensors_in(args)]
        shapes = self._results.of(func, args, kwargs)
        numel = sum(each.numel() for each in given)
        if shapes is None:  # no fake kernel
            return self._compute(func, args, kwargs, given)
        limit = most_computed(*shapes.dtypes, *(each.dtype for each in given))
        if numel + shapes.numel <= limit or self._is_of_objects(given):
            return self._compute(func, args, kwargs, given)
        return self._skip(func, args, kwargs, shapes)

    # Functional collectives

    def _communicate(
        self, func: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> object:
        """Run a functional collective, but make its copies in Python.

        Copies in C++ would touch the whole memory of large tensors.
        """
        name = name_of(func)
        in_place = name in _IN_PLACE
        first = args[0] if isinstance(args[0], list) else [args[0]]
        given = [
            self._run(_CLONE, (each,), {"memory_format": torch.contiguous_format})
            if in_place or not each.is_contiguous()
            else each
            for each in first
        ]
        if in_place:
            func = getattr(getattr(torch.ops, _FUNCTIONAL), f"{name}_").default
        return func(given if isinstance(args[0], list) else given[0], *args[1:], **kwargs)

    # Small operations

    def _compute(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        given: list[torch.Tensor],
    ) -> object:
        unknown = False
        for each in given:
            if is_marked(each):
                unknown = True
                zero_if_untouched(each)
        out = func(*args, **kwargs)
        if unknown:
            for each in tensors_in(
                (out, *(written.of(args, kwargs) for written in _written(func)))
            ):
                mark(each)
        return out

    def _read_values(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        given: list[torch.Tensor],
    ) -> object:
        """Return the Python value that an operation reads; uncomputed values are read as zeros."""
        self._note_read(sys._getframe(2))
        if any(map(is_large, given)):
            return name_of(func) in TRUE_OF_ZEROS
        for each in given:
            zero_if_untouched(each)
        return func(*args, **kwargs)

    @staticmethod
    def _is_of_objects(given: list[torch.Tensor]) -> bool:
        """True if tensors hold the bytes of a pickled object, which must have real values."""
        if not given or given[0].dtype is not torch.uint8 or any(map(is_marked, given)):
            return False
        return sends_an_object(sys._getframe(2))

    # Large operations

    def _skip(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        shapes: Shapes,
    ) -> object:
        written = [each.of(args, kwargs) for each in _written(func)]
        for how, value in zip(_written(func), written, strict=True):
            for each in tensors_in((value,)):
                if how.is_out and each.numel() <= most_computed(each.dtype):
                    each.zero_()
                mark(each)
        returned = _returned(func)
        if returned and None not in returned:
            made: Any = (None,) * len(returned)
        else:
            given = [*tensors_in((*args, *kwargs.values()))]
            made = make(shapes.values, given, lambda: of_zeros(func, args, kwargs))
        if not any(place is not None for place in returned):
            return made
        results = made if isinstance(made, tuple) else (made,)
        found = [
            result if place is None else written[place]
            for place, result in zip(returned, results, strict=True)
        ]
        return tuple(found) if len(found) > 1 else found[0]

    # Reads of values

    def _note_read(self, frame: FrameType | None) -> None:
        """Record that a line of the user's code reads a value; ignore reads by torch's own code."""
        while frame is not None and module_of(frame).startswith(_BETWEEN):
            frame = frame.f_back
        if frame is None or is_torchs(frame):
            return
        (file, line), _ = user_call(frame)
        if file:
            self.reads[file, line] += 1

    @contextmanager
    def reads_noted(self) -> Iterator[None]:
        """A block that records the reads by `tolist` and `numpy`, which skip the dispatcher."""
        with ExitStack() as undo:
            for name in ("tolist", "numpy"):
                original = getattr(torch.Tensor, name)
                undo.callback(setattr, torch.Tensor, name, original)
                setattr(torch.Tensor, name, self._reading(original))
            yield

    def _reading(self, original: Callable[..., object]) -> Callable[..., object]:
        def read(tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
            if is_marked(tensor):
                self._note_read(sys._getframe(1))
                zero_if_untouched(tensor)
            return original(tensor, *args, **kwargs)

        return read


def _leave_memory_untouched() -> None:
    """Make Linux map each large tensor separately, in small pages that get memory when touched.

    On the heap or in huge pages, the header of each tensor would take megabytes of memory.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED)


def has_a_mask(indices: Any) -> bool:
    """True if an index is a boolean tensor: its values decide how many elements are chosen."""
    return any(map(_is_a_mask, indices))


def _is_a_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _without_masks(indices: Any) -> list[torch.Tensor | None]:
    """Return indices in which each mask is replaced by the positions of the chosen elements.

    Raises NotComputedError if the values of a mask were not computed.
    """
    found = list[torch.Tensor | None]()
    for index in indices:
        if index is None or not _is_a_mask(index):
            found.append(index)
        elif is_marked(index):
            raise _depends_on_values(_INDEX)
        else:
            found += index.nonzero(as_tuple=True)
    return found


def _depends_on_values(func: Callable[..., object]) -> NotComputedError:
    return NotComputedError(
        f"the shape of {name_of(func)}'s result depends on values, and this run computes none. "
        "State the values in a line before, by `x = ddpkit.stated(x, values)`, or run with values"
    )
