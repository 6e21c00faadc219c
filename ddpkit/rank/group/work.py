"""The Work that a recorded group returns for a call."""

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
    """Keeps Work objects alive for C++ code that waits for them but holds only their C++ half.

    DDP's `join` gives a Work to the reducer, which waits for the Work in the backward pass, and
    then takes the Work's future. A Work without its Python half never ends. So each Work is kept
    until its wait ends. After that, the latest Work is kept a little longer if its data are as
    small as `join`'s flag. A larger Work is not kept longer, because it holds tensors that the
    program may have dropped. If more than `LIMIT` Work objects have no wait, the oldest is dropped.
    """

    LIMIT = 64  # works
    FLAG = 64  # bytes

    def __init__(self) -> None:
        self._pending: dict[int, Work] = {}
        self._last: Work | None = None  # the last work that ended its wait

    def keep(self, work: Work) -> None:
        """Keep a Work that was just posted."""
        self._pending[id(work)] = work
        if len(self._pending) > self.LIMIT:
            del self._pending[next(iter(self._pending))]

    def waited(self, work: Work, nbytes: int) -> None:
        """Release a Work of `nbytes` after its wait; keep a small Work until the next wait."""
        if self._pending.pop(id(work), None) is not None:
            self._last = work if nbytes <= self.FLAG else None


alive = Alive()


class NamedWork(Work):
    """A Work of ddpkit's, with the class name "Work" in error messages of Python and torch."""

    def __init_subclass__(cls) -> None:
        cls.__name__ = "Work"  # pickle uses `__qualname__` and still finds the class

    def __repr__(self) -> str:
        return "<Work>"

    def block_current_stream(self) -> None:
        """Make the current stream wait for the operation."""
        self.wait()

    def get_future_result(self) -> object:
        """Return a future of 0, the number of `WorkResult.SUCCESS`: gloo has no such future."""
        return self.get_future().then(lambda _: 0)


class RecordedWork(NamedWork):
    """A pending operation that records the start and the end of its wait, and its own end."""

    def __init__(self, inner: Any, call: RecordedCall, recorder: Recorder) -> None:
        super().__init__()
        self._inner, self._call, self._recorder = inner, call, recorder

    def wait(self, timeout: timedelta | None = None) -> bool:
        recorder, thread = self._recorder, threading.get_ident()
        self._over()  # before the wait, in which gloo may copy into the tensors
        recorder.waits[thread] = self._call
        if self._call.blocked is None:
            self._call.blocked = recorder.now(self._call)
            recorder.keep(self._call)
        try:
            # C++ passes 0 for "no timeout"
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
        """True if code has waited for the Work, found it completed, or taken its future."""
        return self._call.claimed

    def _over(self) -> None:
        """Record that the code that posted the tensors may use them again."""
        call = self._call
        if not call.claimed and call.versions:
            call.changed, call.versions = changed.have_changed(call.versions), None
        call.claimed = True
        if (watch := self._recorder.watch) is not None:
            watch.over(self)

    def _collected(self) -> None:
        """Record the end of the wait: the operation's end, or the wait's start if later."""
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

    def exception(self) -> object:
        return self._inner.exception()

    def get_future(self) -> Any:
        self._over()  # code with the future may wait for the future instead
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

    def exception(self) -> object:
        return next((error for work in self._works if (error := work.exception())), None)

    def get_future(self) -> Any:
        """Return a future of all results. Raises RuntimeError if a work has no future."""
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
    """The result of a blocking call of NCCL: the stream waits for the call, and Python does not.

    NCCL itself returns None from such a call. A group in Python must not return None, because
    c10d's C++ dereferences the result.
    """

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing, because the stream waits."""
