"""A rank's device, from the host's side: the host launches work, and continues without waiting.

Each launch puts the host's clock forward. The timekeeper simulates the launches, as
`simulate.engine.device` describes. Only the timekeeper knows when an item runs, because its start
may depend on a collective, and so on other ranks' devices. Where a GPU's host would wait, the host
asks the timekeeper.

It would be simpler to tell the timekeeper of each launch at once. But an operation may cost a few
microseconds, and a message to another process costs ten. So the rank collects launches, and sends
them before any action that the timekeeper sees: a post, a question, a time on the clock's page. The
page must never show a time while a launch of an earlier time has not been sent.

A moment on the device is an event, as on a GPU: its time is the host's clock, or the end of the
current stream's last item if that end is later. The recorder reads the time after the run.

gloo moves real values, but a GPU's host does not wait for values. So the rank waits for gloo only
when an operation uses a tensor that gloo may still read or write. An earlier wait could cause a
deadlock that GPUs do not have. A host that needs a peer's values continues when the hosts of all
members have posted, at the time of their latest clock. A GPU's host would continue earlier. The
next launches follow the operation anyway, and the operation ends after that time.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import torch

from ddpkit import torch_private
from ddpkit.protocol.emulation import EVENT, After, DeviceTimes, Launch, Launched, TimesOf
from ddpkit.rank.emulation.carried import CarriedTensors, Carrying
from ddpkit.rank.emulation.clock import Clocks
from ddpkit.rank.emulation.desk import Desk
from ddpkit.rank.emulation.device_rows import HostWaits, rows
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import DeviceMoment, HostState, Moment
from ddpkit.rank.record.recorder import current
from ddpkit.simulate.engine.device import COMPUTE, UP
from ddpkit.simulate.engine.queues import Queues
from ddpkit.trace import Span

if TYPE_CHECKING:
    from ddpkit.rank.emulation.meter import Meter

MOST_LAUNCHES = 4096  # launches in a full batch, which is sent at once
LONGEST_NS = 25_000_000  # real time after which any batch is sent; sending takes up to 2 ms
Number: TypeAlias = tuple[int, int]  # an operation in an `After`
real_ns = time.monotonic_ns  # taken before `seen` replaces the function

NO_NUMBER = 1 << 63  # larger numbers mark nodes that autograd does not number


class Device:
    """The device of a rank during one run."""

    def __init__(self, clocks: Clocks, desk: Desk) -> None:
        self.queues = Queues[Number]()
        self._clocks, self._desk = clocks, desk
        self._main_thread = threading.main_thread().ident
        self._streams = count()
        self._switches: list[tuple[int, Hashable]] = []  # autograd's next node, stream chosen
        self._before: Hashable = None  # the stream of a backward's last operation
        self._in_backward: set[Hashable] = set()  # the streams that a backward has used
        self.launches = self.host_ns = 0  # the host's launches and ns of work, of all threads
        self._unsent: list[Launch] = []
        self._sending = threading.RLock()  # a signal's handler may launch
        self._sent_at = real_ns()
        self._last: tuple[int, After] = (-1, ())
        self._last_moment = DeviceMoment(0)
        self._batch: dict[str, tuple[int, After, list[Number]]] | None = None
        self.carried = CarriedTensors(self.follow, clocks)
        self._unwaited: dict[int, Carrying] = {}  # operations for which no stream waits, by number
        self._times: dict[int, tuple[int, int]] = {}
        self._over = DeviceTimes(0, {})  # stretches of compute, once the run is over
        self.meter: Meter | None = None  # counts the work of launches
        self._waits = HostWaits()
        # Calls, because operations hold tensors, and real time decides when an entry goes.
        self._under_way: dict[int, RecordedCall] = {}
        self.reads: Callable[[torch.Tensor], bool] = lambda _: False  # True if the read is charged
        clocks.main.before_page = desk.before_ask = self.send
        desk.learn = self._learn

    # Streams

    def new_stream(self) -> int:
        """Return the number of a new stream; the default stream has 0."""
        return next(self._streams)

    def choose(self, stream: Hashable) -> None:
        """Make a stream the current stream, and record the number of autograd's next node."""
        self.stretch_ends()
        self.queues.current = stream
        number = torch_private.next_node()
        while self._switches and self._switches[-1][0] >= number:
            self._switches.pop()
        if not self._switches or self._switches[-1][1] is not stream:
            self._switches.append((number, stream))

    @contextmanager
    def on(self, stream: Hashable) -> Iterator[None]:
        """A block in which launches go to `stream`."""
        self.stretch_ends()
        with self.queues.on(stream):
            yield
            self.stretch_ends()

    def follow(self, items: After, stream: Hashable = None) -> None:
        """Make a stream, by default the current stream, wait for the launched items `items`."""
        if stream is None or stream is self.queues.current:
            self.stretch_ends()
        self.queues.follow(items, stream)

    def stretch_ends(self) -> None:
        """End the recorded stretch of operations outside modules, because the device may wait."""
        recorder = current() if threading.get_ident() == self._main_thread else None
        if recorder is not None and recorder.loose is not None:
            recorder.loose.close()

    def _stream_of_backward(self) -> Hashable:
        """Return the stream of a backward operation: the stream of its forward operation.

        autograd numbers nodes as it makes them, and reports the number of the running node. The sum
        of a parameter's gradients has no number, and runs on the current stream.
        """
        number = torch_private.running_node()
        if number is None or number >= NO_NUMBER:
            return self.queues.current
        at = bisect_right(self._switches, number, key=lambda switch: switch[0]) - 1
        return self._switches[max(at, 0)][1]

    def backward_ends(self) -> None:
        """Make the current stream wait for all streams of a backward pass."""
        for stream in self._in_backward:
            self.queues.follow(self.queues.tail(stream))
        self._in_backward.clear()
        self._before = None

    # Launches

    def launch(self, launch_ns: int, work_ns: int, place: str = COMPUTE) -> int:
        """Launch work on the current stream; return the number of the launched item.

        The host works for `launch_ns`. Then `place`, a part of the device, works for `work_ns`.
        """
        clock = self._clocks.mine
        self.spend(launch_ns)
        self.launches += 1
        number, queues = next(self._desk.numbers), self.queues
        if len(self._switches) == 1:  # no other stream was used while a graph was made
            stream, follows = queues.current, queues.launch((number, 0))
        else:
            stream = self._stream_of_backward()
            if self._before is not None and self._before is not stream:
                queues.follow(queues.tail(self._before), stream)
            with queues.on(stream):
                follows = queues.launch((number, 0))
            self._before = stream if torch_private.running_node() is not None else None
            if self._before is not None:
                self._in_backward.add(stream)
        priority = getattr(stream, "priority", 0) if place == COMPUTE else 0
        queue = getattr(stream, "number", 0)
        self._tell((number, clock.now(), place, work_ns, priority, follows, queue))
        return number

    def copy(self, launch_ns: int, copy_ns: int, way: str, nbytes: int, host: str) -> None:
        """Launch a copy of ``nbytes`` bytes over the bus; `host` is "pinned" or "pageable"."""
        number, recorder = self.launch(launch_ns, copy_ns, way), current()
        if recorder is None:
            return
        up = way == UP
        name = "host→device" if up else "device→host"
        facts = {"from": host if up else "device", "to": "device" if up else host}
        moments = DeviceMoment(number, begins=True), DeviceMoment(number)
        recorder.log.add(("copy", name, *moments, nbytes, facts))

    def post(self, operation: Carrying) -> After:
        """Queue a call on the current stream and its communicator; return the preceding operations.

        A message outside a batch is queued only for its pair of ranks.
        """
        number, call = operation.number, operation.call
        self._under_way[number], self._unwaited[number] = call, operation
        call.posted = DeviceMoment(number, begins=True, host=self._host_state())
        communicator = call.what.group
        call.queued = self.moment()
        if self._batch is None:
            if call.what.op in ("send", "recv"):
                communicator += f" with {call.what.peer}"
            return self.queues.collective((number, 0), communicator, blocking=False)
        if communicator not in self._batch:
            joint = next(self._desk.numbers)
            follows = self.queues.collective((joint, 0), communicator, blocking=False)
            self._batch[communicator] = joint, follows, []
        _, follows, messages = self._batch[communicator]
        messages.append((number, 0))
        return follows

    def refused(self, number: int) -> None:
        """Forget an operation that gloo has refused."""
        self._under_way.pop(number, None)
        self._unwaited.pop(number, None)

    def waited(self, number: int) -> None:
        """Record that a stream or the host waits for the operation `number`."""
        self._unwaited.pop(number, None)

    @contextmanager
    def one_batch(self) -> Iterator[None]:
        """A block in which all messages of a group form one item: no message waits for another."""
        self._batch = {}
        try:
            yield
        finally:
            batch, self._batch = self._batch, None
            for joint, _, messages in batch.values():
                self._tell((joint, self._clocks.mine.now(), EVENT, 0, 0, tuple(messages), 0))

    def moment(self, follows: After | None = None) -> DeviceMoment:
        """Return the moment when `follows`, by default the current stream's launches, is done."""
        follows = self.queues.tail() if follows is None else follows
        at = self._clocks.mine.now(), follows
        if at != self._last:
            number = next(self._desk.numbers)
            self._tell((number, at[0], EVENT, 0, 0, follows, 0))
            self._last, self._last_moment = at, DeviceMoment(number, host=self._host_state())
        return self._last_moment

    def _host_state(self) -> HostState:
        queue, meter = getattr(self.queues.current, "number", 0), self.meter
        work = (0, 0) if meter is None else (meter.work.flops, meter.moved)
        return HostState(self._clocks.mine.now(), self.launches, *work, queue)

    def spend(self, ns: int) -> None:
        """Put the host's clock forward by `ns` of work."""
        self.host_ns += ns
        self._clocks.mine.spend(ns)

    def host_facts(self) -> dict[str, int]:
        """Return the number of the host's launches, and the ns for which the host has worked."""
        return {"launches": self.launches, "host_ns": self.host_ns}

    def _tell(self, item: Launch) -> None:
        if threading.get_ident() != self._main_thread:
            self._desk.tell(Launched((item,)))
            return
        with self._sending:
            self._unsent.append(item)
        if len(self._unsent) >= MOST_LAUNCHES or real_ns() - self._sent_at > LONGEST_NS:
            self._clocks.main.say_how()

    def send(self) -> None:
        """Tell the timekeeper about all launches, before the clock's page shows a later time.

        Other threads' questions send these launches too: the main thread may block in a `join`.
        """
        self._sent_at = real_ns()
        with self._sending:
            if self._unsent:
                items, self._unsent = tuple(self._unsent), []
                self._desk.tell(Launched(items))

    # The host waits

    @property
    def on_main_thread(self) -> bool:
        """True if the calling thread is the rank's main thread."""
        return threading.get_ident() == self._main_thread

    @property
    def host_time(self) -> int:
        """The host's time, in ns."""
        return self._clocks.mine.now()

    @property
    def stands(self) -> bool:
        """True while this thread runs ddpkit's code, which takes no time and waits for no value."""
        return self._clocks.mine.stands

    def wait(self, follows: After | None = None, why: str = "") -> None:
        """Make the host wait for operations, by default the current stream's, in the call `why`."""
        self.stretch_ends()
        follows = self.queues.tail() if follows is None else follows
        if not follows:
            return
        clock = self._clocks.mine
        oldest = next(iter(self._under_way.values()), None)
        with clock.stopped(), self.said(oldest), self._waits.noted(clock, why):
            due = self._desk.ask(follows, clock.now())
            assert due.done_ns is not None
            clock.jump(max(due.done_ns, due.now_ns))

    def read(self, tensor: torch.Tensor) -> None:
        """Make the host wait for the values of a tensor; a read by ddpkit itself takes no time."""
        self.carried.touch((tensor,))
        if self.stands:
            return
        if not self.reads(tensor):
            self.wait()

    def synchronize(self, *_: object) -> None:
        """Make the host wait for all launches."""
        self.wait(self.queues.everything(), "synchronize")
        self._take_everything()

    def is_done(self, follows: After) -> bool:
        """True if operations are done. False moves the clock forward, so a polling loop ends."""
        clock = self._clocks.mine
        if not follows:
            return True
        with clock.stopped():
            due = self._desk.ask(follows, clock.now(), clock.now())
            clock.jump(due.now_ns)
            if due.done_ns is not None and due.done_ns <= clock.now():
                return True
        clock.look()
        return False

    def _learn(self, times: TimesOf) -> None:
        """Store new times of operations, and record the operations that are done."""
        self._times |= times
        recorder = current()
        for number in [number for number in self._under_way if number in times]:
            call = self._under_way.pop(number)
            call.done = DeviceMoment(number)
            if recorder is not None:
                recorder.done(call)

    @contextmanager
    def said(self, call: RecordedCall | None) -> Iterator[None]:
        """A block in which the agent reports that this thread waits for `call`."""
        recorder, thread = current(), threading.get_ident()
        if recorder is None or call is None:
            yield
            return
        recorder.waits[thread] = call
        try:
            yield
        finally:
            recorder.wait_over(thread)

    def meet(self, number: int, call: RecordedCall) -> None:
        """Wait until all members have posted an operation; put the host's clock to that time."""
        clock = self._clocks.mine
        with clock.stopped(), self.said(call), self._waits.noted(clock, "values of peers"):
            due = self._desk.ask(((number, 0),), clock.now(), posted=True)
            clock.jump(max(due.done_ns or 0, due.now_ns))

    def _take_everything(self) -> None:
        """Wait until gloo has finished with all tensors, once the device is done.

        After any other wait of the host, the set of finished operations depends on real time. If
        those waits released tensors, the counted memory would depend on real time too.
        """
        over = [number for number in self._unwaited if number not in self._under_way]
        self.carried.take([self._unwaited.pop(number) for number in over])
        self.carried.take_all()

    # Moments, for the recorder

    @property
    def now(self) -> Callable[[], Moment]:
        return self.moment

    def ns(self, moment: Moment) -> int:
        """Return the time of a moment in ns; the host's present time if the moment never came."""
        if not isinstance(moment, DeviceMoment):
            assert isinstance(moment, int)
            return moment
        times = self._times.get(moment.number)
        if times is None:
            return self._clocks.main.now()
        if moment.waits:
            return max(times[0], self._idle_since(times[1]))
        return times[0] if moment.begins else times[1]

    def _idle_since(self, ns: int) -> int:
        """Return the end of the last compute before the time `ns`; `ns` if the device was busy."""
        busy = self._over.busy
        at = bisect_left(busy, (ns,)) - 1  # the last stretch that begins before `ns`
        return 0 if at < 0 else min(ns, busy[at][1])

    def is_past(self, moment: Moment) -> bool:
        return True

    def spans(self, rank: int) -> list[Span]:
        """Return the spans of the host's waits and of side streams, once the run is over."""
        return rows(rank, self._waits, self._over)

    def ended(self, *, well: bool) -> None:
        """Wait for all launches if the function has returned; ask the timekeeper for all times."""
        self.stretch_ends()
        if well:
            self.synchronize()
        self._over = self._desk.ask_times()
