"""What a recorded group gives for a call: the work to wait for."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Work

from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Recorder


class RecordedWork(Work):
    """A pending operation that says when it is waited for, and when it is done."""

    def __init__(self, inner: Any, call: RecordedCall, recorder: Recorder) -> None:
        super().__init__()
        self._inner, self._call, self._recorder = inner, call, recorder

    def wait(self, timeout: timedelta | None = None) -> bool:
        recorder, thread = self._recorder, threading.get_ident()
        recorder.waits[thread] = self._call
        if self._call.blocked is None:
            self._call.blocked = recorder.now(self._call)
        try:
            # C++ says "no timeout" with one of 0.
            came = bool(self._inner.wait(timeout) if timeout else self._inner.wait())
            if self._call.what.op == "recv" and self._call.what.peer is None:
                recorder.came_from(self._call, self.source_rank())
            return came
        finally:
            recorder.waits.pop(thread, None)
            recorder.done(self._call)

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed())

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        return self._inner.exception()

    def get_future(self) -> Any:
        return self._inner.get_future()

    def result(self) -> Any:
        return self._inner.result()

    def source_rank(self) -> int:
        return int(self._inner._source_rank())

    _source_rank = source_rank

    def synchronize(self) -> None:
        self._inner.synchronize()


class InStream(Work):
    """What a blocking call of NCCL gives: the stream waits, and Python need not.

    NCCL itself gives None there, which a group in Python must not: c10d's C++ follows the pointer.
    """

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def synchronize(self) -> None:
        """The stream does."""
