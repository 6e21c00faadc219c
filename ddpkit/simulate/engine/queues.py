"""The queues of a device as its host sees them: the items that the next item follows.

A host launches items on streams, and goes on. An item follows the last item of its stream, and all
items for which the stream was told to wait. A communicator is one queue for collectives of all
streams: each also follows the communicator's last collective. (CUDA C++ Programming Guide,
"Streams"; NCCL User Guide, "Using multiple NCCL communicators concurrently".)

The same bookkeeping serves programs of the simulator, with handles as items, and real ranks, with
the timekeeper's numbers as items.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
DEFAULT = "default"  # the current stream until another stream is chosen


class Queues(Generic[T]):
    """The last items of each stream and of each communicator of a rank's device."""

    def __init__(self) -> None:
        self.current: Hashable = DEFAULT
        self._streams: dict[Hashable, tuple[T, ...]] = {}
        self._communicators: dict[Hashable, T] = {}

    def tail(self, stream: Hashable = None) -> tuple[T, ...]:
        """Return the items that the next item follows; without a stream, on the current stream."""
        return self._streams.get(self.current if stream is None else stream, ())

    def launch(self, item: T) -> tuple[T, ...]:
        """Make an item the current stream's last; return the items that it follows."""
        follows = self.tail()
        self._streams[self.current] = (item,)
        return follows

    def collective(self, item: T, communicator: Hashable, *, blocking: bool) -> tuple[T, ...]:
        """Make an item the communicator's last; return the items that it follows.

        blocking  ``async_op=False``: the current stream's next item follows the collective
        """
        follows = self.tail()
        last = self._communicators.get(communicator)
        if last is not None and last not in follows:
            follows = (*follows, last)
        self._communicators[communicator] = item
        if blocking:
            self._streams[self.current] = (item,)
        return follows

    def follow(self, items: Iterable[T], stream: Hashable = None) -> None:
        """Let a stream wait for items: its next item follows them too. The host goes on."""
        key = self.current if stream is None else stream
        self._streams[key] = tuple(dict.fromkeys((*self._streams.get(key, ()), *items)))

    def everything(self) -> tuple[T, ...]:
        """Return the last items of all streams and communicators: a synchronization awaits them."""
        tails = (item for tail in self._streams.values() for item in tail)
        return tuple(dict.fromkeys((*tails, *self._communicators.values())))

    @contextmanager
    def on(self, stream: Hashable) -> Iterator[None]:
        """A block in which a stream is the current stream."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before
