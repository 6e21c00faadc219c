"""The first difference between an answer's value and the expected value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ddpkit.exercises.values import (
    DIGITS,
    Between,
    Close,
    PlainTensor,
    plain,
    show_float,
    show_value,
)
from ddpkit.text import plural


@dataclass(frozen=True)
class Difference:
    """The first difference between two values: its place, and both values as text.

    `where` is "[2]", "['loss'][0]", or "" for the whole value.
    """

    where: str
    got: str
    expected: str

    def __str__(self) -> str:
        return f"got {self.got}, expected {self.expected}"


def same(got: object, expected: object) -> bool:
    """True if `got` equals `expected` in type and value, so True is not 1, and 1.0 is not 1."""
    got, expected = plain(got), plain(expected)
    if type(got) is not type(expected) and not isinstance(expected, Close | Between):
        # `difference` would make texts of both values, which may be large
        return False
    return difference(got, expected) is None


def difference(got: object, expected: object) -> Difference | None:
    """Return the first difference, or None. `expected` may contain `Close` and `Between`."""
    return _differ(plain(got), plain(expected), "", within=0.0, digits=DIGITS)


def _differ(got: Any, want: Any, where: str, within: float, digits: int) -> Difference | None:
    if isinstance(want, Close):
        return _differ(got, plain(want.value), where, want.within, want.digits)
    if isinstance(want, Between):
        return None if got in want else Difference(where, show_value(got), show_value(want))
    if type(got) is not type(want):
        return Difference(where, show_value(got, digits), show_value(want, digits))
    match want:
        case PlainTensor():
            return _differ_in_tensor(got, want, where, within, digits)
        case list() | tuple() if len(got) != len(want):
            return Difference(where, _count(got), _count(want))
        case list() | tuple():
            pairs = ((f"{where}[{at}]", got[at], want[at]) for at in range(len(want)))
        case dict() if got.keys() != want.keys():
            return Difference(where, _keys(got), _keys(want))
        case dict():
            pairs = ((f"{where}[{key!r}]", got[key], want[key]) for key in want)
        case float():
            return _differ_in_float(got, want, where, within, digits)
        case _:
            equal = bool(got == want)
            return None if equal else Difference(where, show_value(got), show_value(want))
    found = (_differ(one, other, at, within, digits) for at, one, other in pairs)
    return next((each for each in found if each), None)


def _differ_in_float(
    got: float, want: float, where: str, within: float, digits: int
) -> Difference | None:
    if got == want or (math.isnan(got) and math.isnan(want)) or abs(got - want) <= within:
        return None
    texts = show_float(got, digits), show_float(want, digits)
    if texts[0] == texts[1]:  # the values differ only in digits that are not shown
        texts = repr(got), repr(want)
    return Difference(where, *texts)


def _differ_in_tensor(
    got: PlainTensor, want: PlainTensor, where: str, within: float, digits: int
) -> Difference | None:
    if got == want:
        return None
    kinds = [(each.library, each.dtype, each.shape) for each in (got, want)]
    if kinds[0] != kinds[1]:
        names = [f"{each} of {each.library}" for each in (got, want)]
        if got.library == want.library:
            names = [str(got), str(want)]
        return Difference(where, *names)
    differs = got.values != want.values
    if got.values.is_floating_point():
        differs &= ~(got.values.isnan() & want.values.isnan())
        differs &= ~((got.values.double() - want.values.double()).abs() <= within)
    indices = differs.nonzero().tolist()
    if not indices:
        return None
    index = tuple(indices[0])
    values = got.values[index].item(), want.values[index].item()
    found = _differ(*values, "", within=0.0, digits=digits)
    at = f"{where}{list(index)}" if index else where
    return Difference(at, found.got, found.expected) if found else None


def _count(values: list[object] | tuple[object, ...]) -> str:
    return f"{len(values)} {plural(len(values), 'value')}"


def _keys(values: dict[Any, Any]) -> str:
    return "the keys " + (show_value(sorted(map(str, values))) if values else "[]")
