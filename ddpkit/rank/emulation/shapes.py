"""The shapes of an operation's results, found by running the operation on torch's fake tensors.

A shape also records whether the result is a view: some operations return views of their arguments,
or of another result, although their schemas do not say so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from ddpkit import torch_private
from ddpkit.protocol.not_computed import mark, most_computed
from ddpkit.rank.emulation.meter import words
from ddpkit.torch_private import schema_of

SIGNATURES = 8192  # the most signatures in memory
TRUE_OF_ZEROS = words("all equal allclose")
# A mean or a sum of these losses has a storage with room for the losses of all elements.
_WIDE = words("mse_loss smooth_l1_loss soft_margin_loss binary_cross_entropy")


class Shape(NamedTuple):
    """A tensor that is to be made, or a view of the storage of another tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    numel: int
    base: int | None  # None for a new tensor; for a view, the number of an argument or a result
    offset: int  # elements from the base's first element
    room: int  # elements of a new tensor's storage, if there are more than the tensor has


class Shapes(NamedTuple):
    """The results of an operation, with a `Shape` in place of each new tensor."""

    values: Any
    numel: int  # elements of all results together
    dtypes: tuple[torch.dtype, ...]


def name_of(func: Callable[..., object]) -> str:
    return str(schema_of(func).name.rpartition("::")[2])


def tensors_in(values: Iterable[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _signature(value: object) -> object:
    """Return a key for an argument: arguments with equal keys give results of equal shapes."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, list | tuple):
        return tuple(map(_signature, value))
    if isinstance(value, torch.Generator):
        return None
    return type(value), value  # 1, 1.0 and True are equal, and give results of different types


class ResultShapes:
    """The shapes of operations' results, which torch computes once for each signature."""

    def __init__(self) -> None:
        self._shapes: dict[object, Shapes | None] = {}
        self._fake: Any = None  # torch's mode, once a shape was asked for
        self._asking = threading.Lock()  # torch's mode serves one thread at a time

    def of(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes | None:
        """Return the shapes of an operation's results; None if one is sparse or if torch fails."""
        key = func, _signature(args), tuple((name, _signature(v)) for name, v in kwargs.items())
        try:
            return self._shapes[key]
        except KeyError:
            if len(self._shapes) >= SIGNATURES:  # a loop may have a new shape each time
                self._shapes.clear()
            found = self._shapes[key] = self._ask(func, args, kwargs)
            return found

    def _ask(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes | None:
        if self._fake is None:
            self._fake = torch_private.fake_mode()
        with self._asking, torch_private.no_modes(), self._fake:
            args, kwargs = _faked(args), _faked(kwargs)
            given = [*tensors_in((*args, *kwargs.values()))]
            try:
                out = func(*args, **kwargs)
            except Exception:  # the real operation will raise its own error
                return None
        found = [*tensors_in((out,))]
        if any(each.layout is not torch.strided for each in found):
            return None
        numel = sum(each.numel() for each in found)
        wide = given[0].numel() if name_of(func) in _WIDE and numel == 1 else 0
        return Shapes(_shaped(out, given, wide), numel, tuple({each.dtype for each in found}))


# Not a nested function: a recursive closure is a reference cycle, and would keep tensors alive.
def make(value: Any, known: list[torch.Tensor], fill: Callable[[], Any]) -> object:
    """Return `value` with a tensor in place of each shape.

    Each tensor is new, or is a view of a tensor in `known`.

    fill  returns the value with which a small new tensor is filled
    """
    if not isinstance(value, Shape):
        is_list = isinstance(value, list | tuple)
        return type(value)(make(each, known, fill) for each in value) if is_list else value
    if value.base is not None:
        base = known[value.base]
        offset = base.storage_offset() + value.offset
        new = base.as_strided(value.shape, value.strides, offset)
    else:
        if value.room:
            new = torch.empty(value.room, dtype=value.dtype).as_strided(value.shape, value.strides)
        else:
            new = torch.empty_strided(value.shape, value.strides, dtype=value.dtype)
        if value.numel <= most_computed(value.dtype):
            new.fill_(fill())
        mark(new)
    known.append(new)
    return new


def of_zeros(func: Any, args: tuple[Any, ...], kwargs: dict[str, object]) -> object:
    """Return the value of the result's elements if all arguments of the operation were zero."""
    if torch.Tag.pointwise not in func.tags:
        return name_of(func) in TRUE_OF_ZEROS
    named = {name: _zero(value) for name, value in kwargs.items()}
    return next(tensors_in((func(*_zero(args), **named),))).item()


def _zero(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros((), dtype=value.dtype)
    return type(value)(map(_zero, value)) if isinstance(value, list | tuple) else value


def _shaped(out: object, known: list[torch.Tensor], room: int) -> object:
    """Return `out` with a shape in place of each fake tensor, and add the fake tensors to `known`.

    known  the operation's arguments at first; a result may be a view of one of these tensors
    room   the number of elements in a new tensor's storage, or 0
    """
    if isinstance(out, torch.Tensor):
        storage = torch_private.storage_id(out.untyped_storage())
        base = next(
            (
                number
                for number, each in enumerate(known)
                if torch_private.storage_id(each.untyped_storage()) == storage
            ),
            None,
        )
        known.append(out)
        return Shape(
            *(tuple(out.shape), out.stride(), out.dtype, out.numel(), base),
            int(out.storage_offset()),
            room,
        )
    if isinstance(out, list | tuple):
        return type(out)(_shaped(each, known, room) for each in out)
    return out


def _faked(value: object) -> Any:
    """Return an argument with a fake tensor in place of each tensor.

    Call this inside the fake mode.
    """
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(map(_faked, value))
    if isinstance(value, dict):
        return {name: _faked(each) for name, each in value.items()}
    return None if isinstance(value, torch.Generator) else value
