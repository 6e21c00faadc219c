"""Makes DTensor's dispatch of an operation on a list take time in proportion to the list's length.

torch decides for each element of the list how it is sharded, and for each element looks through the
arguments of the whole operation for a strided shard. An AdamW step on the 723 parameters of a model
takes seconds of real time in this way. The answer is the same for all elements, so it is looked up
once. On a modelled machine Python takes no emulated time, so no emulated number changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpkit import torch_private


@contextmanager
def each_argument_seen_once() -> Iterator[None]:
    """A block in which torch looks for strided shards once for each operation on DTensors."""
    found = torch_private.strided_shards()
    if found is None:
        yield
        return
    home, strided = found
    original = getattr(home, torch_private.STRIDED)
    last: tuple[weakref.ref[object] | None, bool] = None, False

    def propagate(strategy: object, schema: Any) -> None:
        nonlocal last
        known, any_strided = last
        if known is None or known() is not schema:
            placements = (each for spec in schema.args_spec for each in spec.placements)
            any_strided = any(isinstance(each, strided) for each in placements)
            last = weakref.ref(schema), any_strided
        if any_strided:
            original(strategy, schema)

    setattr(home, torch_private.STRIDED, propagate)
    try:
        yield
    finally:
        setattr(home, torch_private.STRIDED, original)
