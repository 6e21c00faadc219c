"""Copies of an answer's values as plain data, which are compared strictly and printed as text.

A check uses values only after `plain` has copied them into data of known types, so that an object
with a misleading `__eq__` or `__repr__` has no effect. The text of a value must be the same in
every run, because nbval compares it. So the text has no address, no time, and only digits that are
equal on all machines.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpkit.text import VALUE, cut

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 6  # significant digits shown of a float
SHORT = 8  # a tensor of at most so many elements is shown element by element
DEPTH = 16  # deepest nesting that is followed, because a list or dict may contain itself

SCALARS = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True)
class PlainTensor:
    """A copy of a dense tensor or array; two are equal if type, shape and all bits are equal.

    -0.0 counts as 0.0, because an empty sum may give either.
    """

    library: str  # "torch" or "numpy"
    dtype: str  # "float32"
    shape: tuple[int, ...]
    data: bytes
    # torch.Tensor on the CPU, to compare element by element
    values: Tensor = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class Opaque:
    """A stand-in for an object that is not plain data; it is equal to no value."""

    type_name: str


@dataclass(frozen=True)
class Close:
    """An expected float, or list or tensor of floats, that must be right to `digits` digits.

    The significant digits (at most 5) count from the largest expected value. Only these digits are
    printed, because right answers with different rounding must print the same.
    """

    value: object
    digits: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.digits < DIGITS:
            raise ValueError(f"digits must be 1 to {DIGITS - 1}, not {self.digits}")

    @property
    def within(self) -> float:
        """The largest absolute error that is allowed."""
        leaves = [abs(leaf) for leaf in _numbers(plain(self.value))]
        return (max(leaves, default=0.0) or 1.0) * 10.0**-self.digits


@dataclass(frozen=True)
class Between:
    """An expected int from `least` to `most`, both included: for example, a number of bytes.

    A right answer cannot work with less than `least` bytes of information. `most` is the number of
    the lesson's own answer.
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(f"least={self.least} is larger than most={self.most}")

    def __contains__(self, got: object) -> bool:
        return type(got) is int and self.least <= got <= self.most


def plain(value: Any, depth: int = 0) -> Any:
    """Return a copy of `value` as plain data; an object that is not plain becomes `Opaque`."""
    kind: Any = type(value)
    if kind in SCALARS or kind in (PlainTensor, Opaque, Close, Between):
        return value
    if depth > DEPTH:
        return Opaque(f"{kind.__name__}, nested too deep")
    # exact types: an object of a subclass could give a different value each time
    if kind is list:
        return [plain(item, depth + 1) for item in value]
    if kind is tuple or kind is _of("torch", "Size"):
        return tuple(plain(item, depth + 1) for item in value)
    if is_numpy_scalar(kind):
        number = value.item()
        return number if type(number) in SCALARS else Opaque(kind.__name__)
    if kind is dict:
        items = [(_key(key), item) for key, item in value.items()]
        if all(type(key) in SCALARS for key, _ in items):
            return {key: plain(item, depth + 1) for key, item in items}
    if kind in (_of("torch", "Tensor"), _of("torch.nn", "Parameter")):
        return _plain_tensor(value, "torch")
    if kind is _of("numpy", "ndarray"):
        return _plain_tensor(value, "numpy")
    return Opaque(kind.__name__)


def is_numpy_scalar(kind: type) -> bool:
    """True for a class of numpy numbers, which count as Python numbers of the same value."""
    generic = _of("numpy", "generic")
    is_one = generic is not None and issubclass(kind, generic)
    # false for a subclass that a student wrote
    return is_one and _of("numpy", kind.__name__) is kind


def _key(key: Any) -> Any:
    return key.item() if is_numpy_scalar(type(key)) else key


def _of(module: str, name: str) -> type | None:
    """Return a class of a library by its name; None if the library has not been loaded."""
    return getattr(sys.modules.get(module), name, None)


def _plain_tensor(value: Any, library: str) -> PlainTensor | Opaque:
    import torch

    try:
        tensor = torch.from_numpy(value.copy()) if library == "numpy" else value
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        # contiguous() leaves the strides of empty or one-element tensors as they are
        tensor = tensor.clone(memory_format=torch.contiguous_format)
        if tensor.is_floating_point():
            tensor = tensor + 0.0  # -0.0 + 0.0 is 0.0
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # sparse or meta tensor
        return Opaque(f"{library} tensor that is not dense")
    return PlainTensor(
        library, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), data, tensor
    )


def digits_of(expected: object) -> int:
    """Return the number of digits to print for a value: the fewest digits of a `Close` inside."""
    match plain(expected):
        case Close(digits=digits):
            return digits
        case list() | tuple() as items:
            return min(map(digits_of, items), default=DIGITS)
        case dict() as items:
            return min(map(digits_of, items.values()), default=DIGITS)
        case _:
            return DIGITS


def _numbers(value: object) -> Iterator[float]:
    """Yield every finite number in plain data."""
    if isinstance(value, PlainTensor):
        yield from _numbers(value.values.reshape(-1).tolist())
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and math.isfinite(value):
        yield float(value)


# --- text -----------------------------------------------------------------------------------------


def show_value(value: object, digits: int = DIGITS, width: int = VALUE) -> str:
    """Return one line of text for any value.

    A long value is shown by its size and a digest, and a long text by its beginning.
    """
    value = plain(value)
    if isinstance(value, Close):
        digits = value.digits
        value = plain(value.value)
    text = _text(value, digits)
    if len(text) <= width or isinstance(value, PlainTensor | Opaque):
        return text
    if isinstance(value, str):
        return cut(text, width)
    size = f" of {len(value)}" if isinstance(value, list | tuple | dict | bytes) else ""
    return f"{type(value).__name__}{size}, {_sha(text)}"


def show_float(value: float, digits: int = DIGITS) -> str:
    """Return a float as text with `digits` digits, never as an int: 3.0, 0.25, 1e-07, nan."""
    text = f"{value + 0.0:.{digits}g}"
    return text if any(mark in text for mark in ".einf") else text + ".0"


def _text(value: object, digits: int) -> str:
    match value:
        case float():
            return show_float(value, digits)
        case bool() | None:
            return str(value)
        case int():
            return str(value) if value.bit_length() < 256 else f"int, {_sha(hex(value))}"
        case list():
            return f"[{', '.join(_text(item, digits) for item in value)}]"
        case tuple():
            inner = ", ".join(_text(item, digits) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case dict():  # sorted, because dicts are equal in any order
            keys = sorted(value, key=lambda key: (type(key).__name__, str(key)))
            return f"{{{', '.join(f'{key!r}: {_text(value[key], digits)}' for key in keys)}}}"
        case PlainTensor():
            return _tensor_text(value, digits)
        case Between(least=least, most=most):
            return str(most) if least == most else f"{least} to {most}"
        case Opaque():
            return f"<{value.type_name}>"
        case _:
            return repr(value)


def _tensor_text(tensor: PlainTensor, digits: int) -> str:
    if tensor.values.numel() > SHORT:
        if digits == DIGITS:
            return f"{tensor} {_tensor_sha(tensor)}"
        # Show two rounded numbers made from all elements: right answers may differ in last bits.
        import torch

        flat = tensor.values.reshape(-1).to(torch.float64)
        wave = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
        norm = float(flat.norm())
        mark = float(flat @ wave) / (norm or 1.0)
        return f"{tensor} norm {show_float(norm, digits)}, mark {round(mark, digits):.{digits}f}"
    name = "tensor" if tensor.library == "torch" else "array"
    usual = tensor.dtype in ("float32", "int64", "bool")
    dtype = "" if usual and tensor.library == "torch" else f", dtype={tensor.dtype}"
    return f"{name}({_text(tensor.values.tolist(), digits)}{dtype})"


def digest(value: object) -> str:
    """Return 12 hex digits of a SHA-256 over a value's type, shape and every bit.

    >>> digest([1, 2.5])
    '29c5bbc8d474'
    """
    return _sha(_exact(plain(value)))


def _exact(value: object) -> str:
    match value:
        case PlainTensor():
            return _tensor_sha(value)
        case list() | tuple():
            return f"{type(value).__name__}({','.join(map(_exact, value))})"
        case dict():
            return f"dict({','.join(sorted(f'{key!r}:{_exact(value[key])}' for key in value))})"
        case float():
            return repr(value + 0.0)
        case int():
            return hex(value) if type(value) is int else str(value)
        case _:
            return repr(value)


def _tensor_sha(tensor: PlainTensor) -> str:
    sha = hashlib.sha256(f"{tensor.dtype}{list(tensor.shape)}".encode())
    sha.update(tensor.data)
    return sha.hexdigest()[:12]


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]
