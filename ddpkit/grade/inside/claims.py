"""`encode`: encodes values as plain JSON, the only form in which they leave the sandbox.

A claim is never pickled, because loading a pickle can run code. Outside, `ddpkit.grade.decode`
reads the claim.
"""

from __future__ import annotations

import base64
from typing import Any

from ddpkit.exercises.values import Opaque, PlainTensor, plain

# bytes of a tensor, characters of a text; a larger value is sent as its type alone
MOST = 8_000_000


def encode(value: object) -> Any:
    """Return JSON for any value, after `ddpkit.exercises.values.plain` has made plain data of it.

    A value that is not plain data becomes the name of its type.
    """
    value = plain(value)
    match value:
        case None | bool():
            return value
        case int():
            return ["i", hex(value)]
        case float():
            return ["f", value.hex()]
        case str():
            return ["s", value] if len(value) <= MOST else ["o", "str, too large"]
        case bytes():
            return ["b", base64.b64encode(value).decode()]
        case list() | tuple():
            return ["l" if isinstance(value, list) else "t", [encode(each) for each in value]]
        case dict():
            return ["d", [[encode(key), encode(each)] for key, each in value.items()]]
        case PlainTensor() if len(value.data) <= MOST:
            data = base64.b64encode(value.data).decode()
            return ["T", value.library, value.dtype, list(value.shape), data]
        case PlainTensor():
            return ["o", f"{value}, too large"]
        case _:
            return ["o", value.type_name if isinstance(value, Opaque) else type(value).__name__]
