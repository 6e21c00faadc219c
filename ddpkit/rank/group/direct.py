"""Starts operations on gloo's and NCCL's groups in real time, without emulation."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from ddpkit.rank.group import arguments, staged
from ddpkit.rank.group.believed import SCATTERS as INTO_ONE
from ddpkit.rank.group.methods import RENAMED
from ddpkit.rank.group.work import NamedWork
from ddpkit.rank.record.call import RecordedCall

if TYPE_CHECKING:
    import torch.distributed as dist

SCATTERS = ("reduce_scatter", *INTO_ONE)


class Direct:
    """Starts operations on a group of gloo or NCCL. An operation ends when the backend is done."""

    def __init__(
        self, inner: dist.ProcessGroupGloo, on_gpu: dist.ProcessGroupNCCL | None = None
    ) -> None:
        self._inner, self._on_gpu = inner, on_gpu

    def start(self, call: RecordedCall, method: str, *args: Any, **kwargs: object) -> Any:
        """Call the group's method, and return its Work. `call` is the record of the operation."""
        group = self._on_gpu if call.on_gpu else self._inner
        found = getattr(group, method, None) or getattr(group, RENAMED[method])
        if method in staged.MESSAGES and group is self._inner and args[0][0].is_cuda:
            return staged.start(found, method, *args)
        started = found(*args, **kwargs)
        if method in SCATTERS and group is self._inner:
            return Scattered(started, arguments.tensors(args[:1]))
        return started


class Scattered(NamedWork):
    """A Work for gloo's reduce_scatter with a future and a result, which gloo's own Work lacks."""

    def __init__(self, inner: dist.Work, outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self._inner, self._outputs = inner, outputs
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        return bool(self._inner.wait(timeout) if timeout else self._inner.wait())

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> object:
        return self._inner.exception()

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    def synchronize(self) -> None:
        self._inner.synchronize()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of the outputs; a new thread waits for gloo, and then sets the future."""
        if self._future is None:
            future: Any = torch.futures.Future()
            self._future = future

            def take() -> None:
                try:
                    self._inner.wait()
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(self._outputs)

            threading.Thread(target=take, daemon=True, name="ddpkit-wait").start()
        return self._future
