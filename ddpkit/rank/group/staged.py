"""Sends messages of ranks that share a GPU through the host, because gloo sends only from there.

gloo's collectives copy CUDA tensors through the host themselves. gloo's messages would use a GPU
address as if it were an address of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from ddpkit import torch_private
from ddpkit.rank.group.work import NamedWork

if TYPE_CHECKING:
    import torch.distributed as dist

MESSAGES = ("send", "recv", "recv_anysource")


def start(
    begin: Callable[..., dist.Work], method: str, tensors: list[torch.Tensor], *rest: object
) -> dist.Work:
    """Begin a send or receive of GPU tensors through tensors of the host; return the Work."""
    if method == "send":
        return begin([tensor.detach().cpu() for tensor in tensors], *rest)
    landing = [torch.empty_like(tensor, device="cpu") for tensor in tensors]
    return Landing(begin(landing, *rest), landing, tensors)


class Landing(NamedWork):
    """A message that is received in the host's memory; the wait copies it to the final tensors."""

    def __init__(
        self, inner: dist.Work, landing: list[torch.Tensor], tensors: list[torch.Tensor]
    ) -> None:
        super().__init__()
        self._inner = inner
        self._pairs = list(zip(tensors, landing, strict=True))

    def wait(self, timeout: timedelta | None = None) -> bool:
        came = bool(self._inner.wait(timeout) if timeout else self._inner.wait())
        for tensor, landed in self._pairs:
            tensor.detach().copy_(landed)  # detached: a pipeline's tensor may require a gradient
        self._pairs = []  # a second wait copies nothing
        return came

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> object:
        return self._inner.exception()

    def get_future(self) -> Any:
        return self._inner.get_future()

    def source_rank(self) -> int:
        return torch_private.source_of(self._inner)

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.wait()
