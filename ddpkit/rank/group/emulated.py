"""The emulated network: gloo moves the bytes, and each operation ends when the link would end it.

The link's rules stand in `ddpkit.link`. The time at which a message leaves is written on a
noticeboard, memory shared by the ranks of a run, before the message is sent. The receiver reads it
once the message is there, works out when its last byte would have come in, and sleeps till then.
So the real transfer runs inside the emulated one and adds nothing to it, and waiting burns no CPU.

Clock: `perf_counter_ns`, common to all processes of a machine.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch

from ddpkit.link import Link, Links
from ddpkit.protocol.noticeboard import Noticeboard
from ddpkit.rank.record.call import RecordedCall
from ddpkit.simulate import collective_ns

LAG = 5_000_000  # ns, the most that a late wake-up is made up for


@dataclass
class Wire:
    """This rank's link: how long its two sides are busy with all that it sends and receives."""

    rank: int
    links: Links
    board: Noticeboard
    lag_ns: int = 0  # by how much this process is behind the emulated time, for being woken late
    _out_free_ns: int = 0
    _incoming: list[tuple[int, int]] = field(default_factory=list)  # busy (start, end), sorted
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def link(self) -> Link:
        return self.links[self.rank]

    def now(self) -> int:
        return time.perf_counter_ns() - self.lag_ns

    def leave(self, nbytes: int) -> int:
        """Put a message on the outgoing side as soon as that is free; returns when it leaves."""
        with self._lock:
            leaves = max(self.now(), self._out_free_ns)
            self._out_free_ns = leaves + self.link.wire_ns(nbytes)
            return leaves

    def arrive(self, src: int, leaves_ns: int, nbytes: int) -> int:
        """Take a message in on the incoming side; returns when its last byte is in.

        Messages are waited for in any order, so this one may have come before others that were
        already counted: it gets the first gap that is long enough.
        """
        earliest = self.links[src].arrival_ns(self.link, nbytes, leaves_ns)
        length = self.link.wire_ns(nbytes)
        with self._lock:
            for start, end in self._incoming:
                if earliest + length <= start:
                    break
                earliest = max(earliest, end)
            insort(self._incoming, (earliest, earliest + length))
            del self._incoming[:-64]
        return earliest + length

    def ready(self) -> int:
        """Since when both sides are free for a collective."""
        with self._lock:
            return max(self.now(), self._out_free_ns, *(end for _, end in self._incoming[-1:]))

    def occupy_until(self, end_ns: int) -> None:
        """A collective has both sides until then."""
        with self._lock:
            self._out_free_ns = max(self._out_free_ns, end_ns)

    def sleep_until(self, due_ns: int, called_ns: int) -> None:
        """Sleep; afterwards the emulated time is `due_ns`, or that of the call if that is later.

        A process is woken some 0.1 ms late, and what it does next would be so much later. The
        emulated clock does not count that: `now` stays behind the real one by the `lag_ns`.
        """
        emulated = max(called_ns, due_ns)
        while (left := due_ns - time.perf_counter_ns()) > 0:
            time.sleep(left / 1e9)
        if threading.current_thread() is threading.main_thread():
            self.lag_ns = min(time.perf_counter_ns() - emulated, LAG)


class PacedMessage:
    """A send or a recv under way."""

    def __init__(self, inner: Any, wire: Wire, due: Callable[[], int]) -> None:
        self._inner, self._wire, self._due = inner, wire, due
        self.due_ns = 0  # known once the bytes are here

    def wait(self, timeout: timedelta | None = None) -> bool:
        called = self._wire.now()
        done = self._inner.wait(timeout) if timeout else self._inner.wait()
        if not self.due_ns:
            self.due_ns = self._due()
        self._wire.sleep_until(self.due_ns, called)
        return bool(done)

    def is_completed(self) -> bool:
        return bool(self._inner.is_completed() and time.perf_counter_ns() >= self.due_ns > 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class PacedCollective:
    """A collective under way: done when gloo is, and the link."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner, self._wire = inner, wire
        self._known, self._future = threading.Event(), torch.futures.Future[Any]()
        self._error: Exception | None = None
        self.due_ns = 0

    def settle(self, due_ns: int, courier: Courier, value: Any) -> None:
        """The bytes are here, and `due_ns` is when the link is through."""
        self.due_ns = due_ns
        self._known.set()
        courier.deliver(due_ns, lambda: self._future.set_result(value))

    def fail(self, error: Exception) -> None:
        self._error = error
        self._known.set()
        self._future.set_exception(error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        called = self._wire.now()
        if not self._known.wait(None if timeout is None else timeout.total_seconds()):
            raise RuntimeError(f"Timed out waiting {timeout} for the operation to complete")
        if self._error is not None:
            raise self._error
        self._wire.sleep_until(self.due_ns, called)
        return True

    def is_completed(self) -> bool:
        return self._known.is_set() and time.perf_counter_ns() >= self.due_ns

    def get_future(self) -> Any:
        return self._future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Courier(threading.Thread):
    """Calls back at given times."""

    def __init__(self) -> None:
        super().__init__(name="ddpkit-courier", daemon=True)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number, self._changed = itertools.count(), threading.Condition()

    def deliver(self, due_ns: int, call: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (due_ns, next(self._number), call))
            self._changed.notify()

    def run(self) -> None:
        while True:
            with self._changed:
                while not self._due:
                    self._changed.wait()
                left = self._due[0][0] - time.perf_counter_ns()
                if left > 0:
                    self._changed.wait(left / 1e9)
                    continue
                _, _, call = heapq.heappop(self._due)
            call()


class Paced:
    """Starts operations on a gloo group, and paces them (`group.Direct` starts them unpaced)."""

    def __init__(self, start: Callable[..., Any], wire: Wire, courier: Courier) -> None:
        self._start, self._wire, self._courier = start, wire, courier
        self._queue: deque[tuple[RecordedCall, PacedCollective]] = deque()  # as posted
        self._through: dict[str, int] = defaultdict(int)  # until when the collectives before last
        self._here: dict[int, Any] = {}  # what gloo is done with: id(work) -> value
        self._lock = threading.Lock()

    def start(self, call: RecordedCall, method: str, *args: Any, **kwargs: Any) -> Any:
        if call.what.op == "send":
            return self._send(call, method, args)
        if call.what.op == "recv":
            return self._recv(call, method, args)
        return self._collective(call, method, args, kwargs)

    def _send(self, call: RecordedCall, method: str, args: tuple[Any, ...]) -> PacedMessage:
        wire, what = self._wire, call.what
        assert what.peer is not None
        leaves = wire.leave(what.bytes)
        wire.board.write(wire.rank, what.peer, (what.group, what.tag, call.seq), leaves)
        due = leaves + wire.link.wire_ns(what.bytes)
        return PacedMessage(self._start(call, method, *args), wire, lambda: due)

    def _recv(self, call: RecordedCall, method: str, args: tuple[Any, ...]) -> PacedMessage:
        wire, what, inner = self._wire, call.what, self._start(call, method, *args)

        def due() -> int:
            if what.peer is None:  # from any: which message, its sender's notice does not tell
                return wire.arrive(what.members[inner._source_rank()], wire.now(), what.bytes)
            leaves = wire.board.read(what.peer, wire.rank, (what.group, what.tag, call.seq))
            return wire.arrive(what.peer, wire.now() if leaves is None else leaves, what.bytes)

        return PacedMessage(inner, wire, due)

    def _collective(
        self, call: RecordedCall, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PacedCollective:
        wire = self._wire
        wire.board.write(wire.rank, wire.rank, (call.what.group, call.seq), wire.ready())
        inner = self._start(call, method, *args, **kwargs)
        paced = PacedCollective(inner, wire)
        with self._lock:
            self._queue.append((call, paced))
        try:
            future = inner.get_future()
        except RuntimeError:  # gloo's reduce_scatter has none
            threading.Thread(
                target=lambda: self._arrived(paced, inner.wait), daemon=True, name="ddpkit-wait"
            ).start()
        else:
            future.add_done_callback(lambda done: self._arrived(paced, done.value))
        return paced

    def _arrived(self, paced: PacedCollective, value: Callable[[], Any]) -> None:
        """Gloo is done with one; those at the head of the queue can be settled, in order."""
        outcome = _outcome(value)
        with self._lock:
            self._here[id(paced)] = outcome
            while self._queue and id(self._queue[0][1]) in self._here:
                call, first = self._queue.popleft()
                result = self._here.pop(id(first))
                if isinstance(result, Exception):
                    first.fail(result)
                else:
                    first.settle(self._due(call), self._courier, result)

    def _due(self, call: RecordedCall) -> int:
        """When the link is through with it: all ranks in, the ones before it done, and its cost."""
        wire, what = self._wire, call.what
        waits_for = what.members if what.root is None else (what.root, wire.rank)
        if what.op in ("reduce", "gather") and what.root == wire.rank:
            waits_for = what.members
        notices = (wire.board.read(rank, rank, (what.group, call.seq)) for rank in waits_for)
        start = max([self._through[what.group], *(notice for notice in notices if notice)])
        links = Links(tuple(wire.links[rank] for rank in what.members))
        takes = collective_ns(what.op, what.bytes, links, is_root=what.root == wire.rank)
        self._through[what.group] = due = start + takes
        wire.occupy_until(due)
        return due


def _outcome(value: Callable[[], Any]) -> Any:
    try:
        return value()
    except Exception as error:
        return error
