"""Plain values as JSON, for the way out of the sandbox. Never pickle: that would run what it reads.

What arrives outside is a student's claim, which `ddpkit.grade.decode` reads.
"""

from __future__ import annotations

import base64
from typing import Any

from ddpkit.exercises.values import Opaque, PlainTensor, plain

MOST = 8_000_000  # characters of one tensor or text; larger ones are only named


def encode(value: object) -> Any:
    """JSON for any value, as `ddpkit.exercises.values.plain` makes it plain data first.

    What is no plain data is named by its type.
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
