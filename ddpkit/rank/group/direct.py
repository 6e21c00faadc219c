"""Starts operations on gloo's and NCCL's groups, which end when the backend ends them."""

from __future__ import annotations

from typing import Any

from ddpkit.rank.group import staged
from ddpkit.rank.group.methods import RENAMED
from ddpkit.rank.record.call import RecordedCall


class Direct:
    """Starts operations on the groups inside, which end when those end them."""

    def __init__(self, inner: Any, on_gpu: Any = None) -> None:
        self._inner, self._on_gpu = inner, on_gpu

    def start(self, call: RecordedCall, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the group's method, and return its Work. `call` is the record of it."""
        group = self._on_gpu if call.on_gpu else self._inner
        found = getattr(group, method, None) or getattr(group, RENAMED[method])
        if method in staged.MESSAGES and group is self._inner and args[0][0].is_cuda:
            return staged.start(found, method, *args)
        return found(*args, **kwargs)
