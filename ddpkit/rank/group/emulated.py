"""The emulated network: gloo moves the bytes, and an operation ends when the link would end it.

The problem. A lesson teaches what latency and bandwidth do, but all ranks sit on one machine, where
gloo moves a message in microseconds. So an operation has to last as long as it would on the link,
whose rules stand in `ddpkit.link`. Waiting must not burn CPU: the ranks share a few cores.

It would be simpler to do the transfer, and then to sleep for what the link takes. That was tried.
It adds the real transfer to every emulated one: a ring of 4 ranks with 4 MB at 50 MB/s took 1.15
times what the formula says. A process is also woken some 0.1 ms late, at each step of the ring.

So a sender writes onto a noticeboard, memory that the ranks share, when its message leaves, and
only then hands the bytes to gloo. When gloo has brought them, the receiver reads the notice, works
out when the last byte would have come in, and sleeps until then: the real transfer runs inside the
emulated one. For a collective, each rank writes when it was ready. When gloo is done with it, each
rank works out from the members' notices when the link would be, by the cost of the algorithm that
`simulate.collective_ns` states. The emulated clock does not count late wake-ups (`Wire.lag_ns`).

What must hold:

- A notice is written before the bytes are sent that it is about. So it is there when they are.
- All ranks read one clock, `perf_counter_ns`, which the processes of a machine share.
- The ends of collectives are worked out in the order in which they were posted, as one begins when
  the one before it has ended. gloo may finish them in another order: what it is done with waits in
  `Paced._arrived` for all that was posted earlier.

What would break it: a machine that is slower than the link, for an operation cannot end before gloo
is done; and a notice that another has overwritten before it was read (its slot is found by a digest
of its key). Its message then counts as if it left when it was received, and a collective does not
wait for that rank.
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
    """A rank's end of the link: until when its two sides are busy, one sending, one receiving.

    Times are in ns of the emulated clock, which is `perf_counter_ns` less `lag_ns`.
    """

    rank: int
    links: Links
    board: Noticeboard
    lag_ns: int = 0  # what late wake-ups have cost, at most `LAG`
    _out_free_ns: int = 0
    _incoming: list[tuple[int, int]] = field(default_factory=list)  # busy (start, end), sorted
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def link(self) -> Link:
        """The rank's own bandwidth and latency."""
        return self.links[self.rank]

    def now(self) -> int:
        """The emulated time."""
        return time.perf_counter_ns() - self.lag_ns

    def leave(self, nbytes: int) -> int:
        """Put a message on the sending side as soon as that is free; return when it leaves."""
        with self._lock:
            leaves = max(self.now(), self._out_free_ns)
            self._out_free_ns = leaves + self.link.wire_ns(nbytes)
            return leaves

    def arrive(self, src: int, leaves_ns: int, nbytes: int) -> int:
        """Take a message in on the receiving side; return when its last byte is in.

        A rank may wait for its messages in any order, so this one may come before others that have
        been counted already: it gets the first gap between them that is long enough.
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
        """Return when both sides are free: a collective cannot begin before."""
        with self._lock:
            return max(self.now(), self._out_free_ns, *(end for _, end in self._incoming[-1:]))

    def occupy_until(self, end_ns: int) -> None:
        """Keep the sides busy with a collective until `end_ns`."""
        with self._lock:
            self._out_free_ns = max(self._out_free_ns, end_ns)

    def sleep_until(self, due_ns: int, called_ns: int) -> None:
        """Sleep until an operation ends; the emulated time is then `due_ns`, or that of the call.

        The later of the two counts: to wait for what has ended already takes no time. A process is
        woken some 0.1 ms late, and what it does next would be so much later. The emulated clock
        does not count that: it stays behind the real one by `lag_ns`.
        """
        emulated = max(called_ns, due_ns)
        while (left := due_ns - time.perf_counter_ns()) > 0:
            time.sleep(left / 1e9)
        if threading.current_thread() is threading.main_thread():
            self.lag_ns = min(time.perf_counter_ns() - emulated, LAG)


class PacedMessage:
    """A send or a recv under way; `due` works out when it ends, once the bytes are here."""

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
    """A collective under way. It has ended when gloo is done with it, and the link would be."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner, self._wire = inner, wire
        self._known, self._future = threading.Event(), torch.futures.Future[Any]()
        self._error: Exception | None = None
        self.due_ns = 0  # when it ends, or an error: known once gloo is done with it

    def end_at(self, due_ns: int, courier: Courier, value: Any) -> None:
        """End the operation at `due_ns`: gloo is done with it, and gave `value`."""
        self.due_ns = due_ns
        self._known.set()
        courier.deliver(due_ns, lambda: self._future.set_result(value))

    def fail(self, error: Exception) -> None:
        """End the operation at once, with gloo's error."""
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
    """A thread that calls back at given times: it sets the futures of collectives."""

    def __init__(self) -> None:
        super().__init__(name="ddpkit-courier", daemon=True)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number, self._changed = itertools.count(), threading.Condition()

    def deliver(self, due_ns: int, call: Callable[[], None]) -> None:
        """Call `call` at `due_ns`."""
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
    """Starts operations on a gloo group, and ends them when the link would.

    On a cluster without a link, `recorded.Direct` is in its place.
    """

    def __init__(self, start: Callable[..., Any], wire: Wire, courier: Courier) -> None:
        self._start, self._wire, self._courier = start, wire, courier
        # The collectives whose end is not known yet, in the order in which they were posted.
        self._queue: deque[tuple[RecordedCall, PacedCollective]] = deque()
        self._last_end: dict[str, int] = defaultdict(int)  # group -> when its latest one ends
        self._values: dict[int, Any] = {}  # id of one that gloo is done with -> what gloo gave
        self._lock = threading.Lock()

    def start(self, call: RecordedCall, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the group's method; return what to wait for. `call` is the record of it."""
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
            if what.peer is None:  # from any rank: which of its messages it is, no notice says
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
        """Note that gloo is done with `paced`, and work out the ends that are known by that."""
        outcome = _outcome(value)
        with self._lock:
            self._values[id(paced)] = outcome
            while self._queue and id(self._queue[0][1]) in self._values:
                call, first = self._queue.popleft()
                result = self._values.pop(id(first))
                if isinstance(result, Exception):
                    first.fail(result)
                else:
                    first.end_at(self._due(call), self._courier, result)

    def _due(self, call: RecordedCall) -> int:
        """When a collective ends, in ns.

        It begins when the ranks that it waits for are ready and the one before it in its group has
        ended, and takes what `collective_ns` says.
        """
        wire, what = self._wire, call.what
        waits_for = what.members if what.root is None else (what.root, wire.rank)
        if what.op in ("reduce", "gather") and what.root == wire.rank:
            waits_for = what.members
        notices = (wire.board.read(rank, rank, (what.group, call.seq)) for rank in waits_for)
        start = max([self._last_end[what.group], *(notice for notice in notices if notice)])
        links = Links(tuple(wire.links[rank] for rank in what.members))
        takes = collective_ns(what.op, what.bytes, links, is_root=what.root == wire.rank)
        self._last_end[what.group] = due = start + takes
        wire.occupy_until(due)
        return due


def _outcome(value: Callable[[], Any]) -> Any:
    """What gloo gave, or the exception that it ended with."""
    try:
        return value()
    except Exception as error:
        return error
