"""The queues of a device: for each new item, the earlier items that must end before it starts.

A host launches items on streams, and goes on. An item follows the last item of its stream, and all
items for which the stream was told to wait. A communicator is a queue for the collectives of all
streams: a collective also follows the communicator's last collective. (CUDA C++ Programming Guide,
"Streams"; NCCL User Guide, "Using multiple NCCL communicators concurrently".)

The simulator and real ranks both use `Queues`: in the simulator's programs the items are handles,
and on real ranks they are the timekeeper's numbers of operations.
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
        """Return the items that the next item of a stream follows.

        The default is the current stream.
        """
        return self._streams.get(self.current if stream is None else stream, ())

    def launch(self, item: T) -> tuple[T, ...]:
        """Make an item the last item of the current stream; return the items that it follows."""
        follows = self.tail()
        self._streams[self.current] = (item,)
        return follows

    def collective(self, item: T, communicator: Hashable, *, blocking: bool) -> tuple[T, ...]:
        """Make a collective the communicator's last item; return the items that it follows.

        If `blocking` (``async_op=False``), the next item of the current stream follows the
        collective.
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
        """Make the next item of a stream follow `items` too. The host does not wait."""
        key = self.current if stream is None else stream
        self._streams[key] = tuple(dict.fromkeys((*self._streams.get(key, ()), *items)))

    def everything(self) -> tuple[T, ...]:
        """Return the last item of each stream and communicator.

        A synchronization waits for all of these items.
        """
        tails = (item for tail in self._streams.values() for item in tail)
        return tuple(dict.fromkeys((*tails, *self._communicators.values())))

    @contextmanager
    def on(self, stream: Hashable) -> Iterator[None]:
        """Make a stream the current stream inside a ``with`` block."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before
