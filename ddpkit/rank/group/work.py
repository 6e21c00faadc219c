"""What a recorded group gives for a call: the work to wait for."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from ddpkit import torch_private
from ddpkit.rank.group import changed
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Recorder


class Alive:
    """Keeps works alive that C++ may still wait for, of which it holds its own half only.

    DDP's `join` hands a work to the reducer, which waits for it in the backward and then asks for
    its future. A work whose Python half has died meanwhile never ends. So each is kept until it was
    waited for, and the last one longer, if it is as small as that flag: a work holds its tensors,
    and the program may have dropped them. Those that nobody waits for are dropped in turn.
    """

    LIMIT = 64  # works
    FLAG = 64  # bytes

    def __init__(self) -> None:
        self._pending: dict[int, Work] = {}
        self._last: Work | None = None  # that was waited for

    def keep(self, work: Work) -> None:
        """Keep a work that was just posted."""
        self._pending[id(work)] = work
        if len(self._pending) > self.LIMIT:
            del self._pending[next(iter(self._pending))]

    def waited(self, work: Work, nbytes: int) -> None:
        """Let go of a work of so many bytes, or when the next one has been waited for."""
        if self._pending.pop(id(work), None) is not None:
            self._last = work if nbytes <= self.FLAG else None


alive = Alive()


class NamedWork(Work):
    """A Work of the kit's, which errors of Python and torch call a Work."""

    def __init_subclass__(cls) -> None:
        cls.__name__ = "Work"  # pickle finds the class by its `__qualname__`

    def __repr__(self) -> str:
        return "<Work>"

    def block_current_stream(self) -> None:
        """Let the current stream wait."""
        self.wait()


class RecordedWork(NamedWork):
    """A pending operation that says when it is waited for, and when it is done."""

    def __init__(self, inner: Any, call: RecordedCall, recorder: Recorder) -> None:
        super().__init__()
        self._inner, self._call, self._recorder = inner, call, recorder

    def wait(self, timeout: timedelta | None = None) -> bool:
        recorder, thread = self._recorder, threading.get_ident()
        self._over()  # now: gloo may copy into the tensors as it is waited for
        recorder.waits[thread] = self._call
        if self._call.blocked is None:
            self._call.blocked = recorder.now(self._call)
            recorder.keep(self._call)
        try:
            # C++ says "no timeout" with one of 0.
            came = bool(self._inner.wait(timeout) if timeout else self._inner.wait())
            if self._call.what.op == "recv" and self._call.what.peer is None:
                recorder.came_from(self._call, self.source_rank())
            return came
        finally:
            recorder.wait_over(thread)
            recorder.ended(self._call)
            self._collected()
            recorder.done(self._call)
            alive.waited(self, self._call.what.bytes)

    def __repr__(self) -> str:
        return f"<Work {self._call.what.op}>"

    @property
    def claimed(self) -> bool:
        """Whether it was waited for, or seen to be done, or has given its future."""
        return self._call.claimed

    def _over(self) -> None:
        """Give the tensors back to who posted them."""
        call = self._call
        if not call.claimed and call.versions:
            call.changed, call.versions = changed.have_changed(call.versions), None
        call.claimed = True
        if (watch := self._recorder.watch) is not None:
            watch.over(self)

    def _collected(self) -> None:
        """Note when the wait was over: when it was done, or at once if that was before."""
        call = self._call
        done, blocked = call.done, call.blocked
        was_done = isinstance(done, int) and isinstance(blocked, int) and done < blocked
        call.collected = blocked if was_done else done

    def is_completed(self) -> bool:
        if completed := bool(self._inner.is_completed()):
            self._over()
        return completed

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        return self._inner.exception()

    def get_future(self) -> Any:
        self._over()  # who has the future may wait for that
        return self._inner.get_future()

    def result(self) -> Any:
        return self._inner.result()

    def source_rank(self) -> int:
        return torch_private.source_of(self._inner)

    _source_rank = source_rank

    def synchronize(self) -> None:
        self._inner.synchronize()


class AllOf(NamedWork):
    """Several pending operations that one call has started."""

    def __init__(self, works: list[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        came = [work.wait(timeout) if timeout else work.wait() for work in self._works]
        return all(came)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        return next((error for work in self._works if (error := work.exception())), None)

    def get_future(self) -> Any:
        """A future of the lists of all. Raises RuntimeError where an operation has none."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(
            lambda done: [tensor for each in done.value() for tensor in each.value()]
        )

    def result(self) -> Any:
        return [tensor for work in self._works for tensor in work.result()]

    def synchronize(self) -> None:
        for work in self._works:
            work.synchronize()


class InStream(NamedWork):
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
