"""Records operations outside all modules, backward passes, optimizers and marked spans as compute.

The problem. Attention that is written as products of tensors, between two messages, calls no
module. The trace showed no compute there, so communication that was hidden behind the products
looked exposed.

Where compute is counted, each operation's cost is known. Operations without a gap between them on
the main thread's clock are one stretch, named after the most expensive operation. A stretch ends
where the thread posts a call or waits, and where other compute takes time.

On an emulated device a stretch lies on one stream, from the stream's moment before the first launch
to the stream's moment after the last launch. A stretch also ends where its stream waits for another
stream.

What must hold: no stretch lies inside other recorded compute, so `is_covered` is called for each
operation. The overhead for an operation is this call and two additions. A stretch has one entry for
each kind of operation.
"""

from __future__ import annotations

from collections.abc import Callable

from ddpkit.rank.record.clock import Moment
from ddpkit.rank.record.log import Log
from ddpkit.torch_private import schema_of
from ddpkit.trace import OPERATIONS


class LooseOperations:
    """The current stretch of operations; `is_covered()` is True while other compute is recorded."""

    def __init__(self, log: Log, is_covered: Callable[[], bool]) -> None:
        self._log, self._is_covered = log, is_covered
        self._start: Moment = 0
        self._end = 0
        self._moment: Callable[[], Moment] | None = None  # on a device: returns the present moment
        self._ns: dict[object, int] = {}  # total time of each kind of operation

    def add(self, operation: object, start: int, ns: int) -> None:
        """Add an operation of torch that began at `start` and took `ns`."""
        if self._is_covered():
            return
        if start != self._end or not self._ns:
            self.close()
            self._start = start
        self._end = start + ns
        self._ns[operation] = self._ns.get(operation, 0) + ns

    def launch(self, operation: object, ns: int, moment: Callable[[], Moment]) -> None:
        """Record, before its launch, an operation that takes a device `ns`."""
        if self._is_covered():
            self.close()
            return
        if not ns:
            return
        if not self._ns:
            self._moment, self._start = moment, moment()
        self._ns[operation] = self._ns.get(operation, 0) + ns

    def close(self) -> None:
        """End the current stretch, if there is one, and add it to the log."""
        if self._ns:
            longest = max(self._ns, key=lambda operation: self._ns[operation])
            name = schema_of(longest).name.rpartition("::")[2]
            self._ns = {}
            end = self._end if self._moment is None else self._moment()
            self._log.add((OPERATIONS, name, self._start, end, 0))
