"""A c10d store on the simulated clock of a `meeting.Room`: a wait takes no real time."""

from __future__ import annotations

import types
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from torch.distributed import DistStoreError, Store

Value = str | bytes
LOOKS = 10_000  # a rank that reads the store more often than this is taken to loop forever


class LooksForEver(BaseException):
    """The error raised if a rank reads the store in an endless loop without a wait.

    Without a wait, the simulated clock does not move.
    """


class Waits(Protocol):
    now: float

    def wait(self, until: float, ready: Callable[[], bool] = ...) -> bool: ...


@dataclass
class Kept:
    """The contents of the store that all ranks share, like the contents of a TCPStore server."""

    values: dict[str, bytes] = field(default_factory=dict)
    queues: defaultdict[str, deque[bytes]] = field(default_factory=lambda: defaultdict(deque))
    deleted: bool = False  # true after a key was deleted
    seconds: float = 0.0  # simulated time of each reading or writing


def fake_store(room: Waits, kept: Kept) -> Store:
    """Return a rank's store, a subclass of the C++ Store, so that a PrefixStore can wrap it.

    The class is made inside this function, because a C++ class cannot be sent to a sandbox.
    """
    made: Callable[[Waits, Kept], Store] = types.new_class("FakeStore", (Overrides, Store))
    return made(room, kept)


class Overrides:
    """The methods of the store; `timeout`, `set_timeout` and `barrier` come from c10d."""

    timeout: timedelta

    def __init__(self, room: Waits, kept: Kept) -> None:
        super().__init__()
        self.room, self.kept, self.looks = room, kept, 0

    def seen(self) -> dict[str, bytes]:
        """Count one read of the store by this rank, and return the contents of the store.

        Raises LooksForEver if this rank has read the store more than LOOKS times.
        """
        self.travel()
        self.looks += 1
        if self.looks > LOOKS:
            raise LooksForEver
        return self.kept.values

    def travel(self) -> None:
        """Let the time of a message to the store pass; other ranks may run meanwhile."""
        if self.kept.seconds:
            self.room.wait(self.room.now + self.kept.seconds)

    def set(self, key: str, value: Value, /) -> None:
        self.travel()
        self.kept.values[key] = coded(value)

    def get(self, key: str, /) -> bytes:
        self.wait([key])
        return self.kept.values[key]

    def add(self, key: str, amount: int, /) -> int:
        total = int(self.seen().get(key, b"0")) + amount
        self.kept.values[key] = b"%d" % total
        return total

    def append(self, key: str, value: Value, /) -> None:
        self.kept.values[key] = self.kept.values.get(key, b"") + coded(value)

    def compare_set(self, key: str, expected: Value, desired: Value, /) -> bytes:
        now = self.seen().get(key, b"")
        if now == coded(expected):
            self.kept.values[key] = now = coded(desired)
        return now or coded(expected)

    def check(self, keys: Sequence[str], /) -> bool:
        values = self.seen()
        return all(key in values for key in listed(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        keys, limit = listed(keys), self.timeout if timeout is None else timeout
        if not isinstance(limit, timedelta):
            raise TypeError(
                "wait(): incompatible function arguments: the timeout must be a timedelta, not "
                f"{type(limit).__name__}"
            )
        self.until(limit, lambda: all(key in self.kept.values for key in keys), keys)

    def until(self, limit: timedelta, ready: Callable[[], bool], keys: Sequence[str]) -> None:
        if not self.room.wait(self.room.now + limit.total_seconds(), ready):
            raise DistStoreError(f"Wait timeout, keys: {', '.join(keys)}")

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        self.wait(keys)
        return [self.kept.values[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Value], /) -> None:
        for key, value in zip(listed(keys), values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def num_keys(self) -> int:
        return len(self.seen())

    def list_keys(self) -> list[str]:
        return list(self.seen())

    def delete_key(self, key: str, /) -> bool:
        there = self.kept.values.pop(key, None) is not None
        self.kept.deleted |= there
        return there

    def clone(self) -> Overrides:
        return self  # no second store, because c10d would not keep a second store alive

    # A PrefixStore calls two of the methods by these names.

    deleteKey, getNumKeys = delete_key, num_keys

    def queue_push(self, key: str, value: Value, /) -> None:
        self.kept.queues[key].append(coded(value))

    def queue_pop(self, key: str, block: bool = True, /) -> bytes:
        queue = self.kept.queues[key]
        self.until(self.timeout if block else timedelta(), lambda: bool(queue), [key])
        return queue.popleft()

    def queue_len(self, key: str, /) -> int:
        self.seen()
        return len(self.kept.queues[key])


def coded(value: Value) -> bytes:
    if not isinstance(value, str | bytes):
        kind = type(value).__name__
        raise TypeError(f"incompatible function arguments: a value must be str, not {kind}")
    return value.encode() if isinstance(value, str) else value


def listed(keys: Sequence[str]) -> list[str]:
    if isinstance(keys, str):
        raise TypeError("incompatible function arguments: the keys must be a list, not a str")
    return list(keys)
