"""The process group of an emulated cluster: gloo moves the bytes, the timekeeper says when.

The problem. All ranks sit on one machine, where gloo moves a message in microseconds, and share its
few cores. A lesson teaches what latency and bandwidth do, and what a step of eight ranks costs that
have a machine each.

It would be simpler to let each operation last as long as it would on the link, by sleeping. That
was done. What a rank computed was still the laptop's: small messages took 3 to 18 times what the
formula says, and a step of eight ranks four times one rank's.

So time is emulated. A rank tells the timekeeper of each operation as it is posted, with its own
emulated time, and hands the bytes to gloo. Where it waits, it asks when the operation is done, and
its clock jumps there (`emulation.clock`); then it takes the bytes, which gloo has brought meanwhile
or brings at once. Nothing sleeps.

DDP's reducer waits for its buckets inside C++, at the end of a backward. It waits for gloo's future
there, in no emulated time. When the backward is over, `Machine` replays that wait.

Callbacks of a future run in a thread of the kit's, in the order in which they were attached, as
soon as gloo is done. Their clock is told relative to the operation that they follow
(`emulation.clock.LaterClock`). What they post goes over a gloo group of their own: in gloo's order
of one group, which is that of real time, the buckets and what their callbacks post would meet
differently on each rank.

What must hold:

- An operation is told of before its bytes are handed to gloo, and before the clock goes on.
- A receive from anybody is handed to gloo when the timekeeper has named its source: gloo itself
  takes what comes first in real time. It names it as soon as it knows, whatever the rank does: the
  sender waits in gloo, and nobody's time passes the sender's.
- Receives of one tag are handed to gloo in the order in which the network has matched them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.distributed import Work

from ddpkit import torch_private
from ddpkit.protocol.call import Call
from ddpkit.protocol.emulation import Due, PostedCollective, PostedSend, Withdrawn
from ddpkit.rank.emulation.clock import LaterClock
from ddpkit.rank.emulation.machine import Machine
from ddpkit.rank.group import arguments
from ddpkit.rank.group.ended import Carried, EndedCollective
from ddpkit.rank.group.futures import EmulatedFuture
from ddpkit.rank.group.recorded import RecordedGroup, is_reducer
from ddpkit.rank.group.work import RecordedWork
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Recorder

if TYPE_CHECKING:  # loads a part of torch that other machines do not need
    from ddpkit.rank.emulation.memory import Held, Memory

Start: TypeAlias = Callable[..., Any]  # (call, method, *args): `recorded.Direct.start`
CALLBACKS = "callbacks"  # in the name of what they post on
LOOK_NS = 1_000  # what a look costs that finds an operation under way, and
# What sums over all ranks, and the place of its input: in a backward that is a bucket.
SUMS = {"all_reduce": 0, "reduce": 0, "reduce_scatter_tensor": 1, "reduce_scatter": 1}
SHARE = 64  # this part of the time that has passed in looking, but
LOOK_AT_MOST_NS = 1_000_000_000  # no more, so that the clock of a loop without end stays a number


class EmulatedGroup(RecordedGroup):
    """A recorded group whose operations end when the emulated network ends them."""

    def __init__(
        self,
        inner: Any,
        start: Start,
        name: str,
        members: tuple[int, ...],
        recorder: Recorder,
        machine: Machine,
        start_of_callbacks: Callable[[], Start],
    ) -> None:
        super().__init__(inner, self._emulated, name, members, recorder)
        self._machine, self._direct = machine, start
        self._make_twin = start_of_callbacks
        self._twin: Start | None = None
        self._twin_lock = threading.Lock()
        self._from_anybody: dict[int, list[EmulatedOperation]] = {}  # by tag: what has no source

    @property
    def _label(self) -> str:
        if self._machine.clocks.mine.is_later:
            return f"{self._name} {CALLBACKS}".strip()
        return self._name

    def _collective(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
        with self._machine.clocks.mine.stopped():
            return super()._collective(method, args, kwargs)

    def allreduce(self, *args: Any, **kwargs: Any) -> Work:
        caller = sys._getframe().f_back
        if not is_reducer(caller):
            return self._collective("allreduce", args, kwargs)
        clock = self._machine.clocks.mine
        with clock.stopped():
            call = self._bucket_posted(args[0][0], caller)
            operation = self._begun(call, "allreduce", *args, **kwargs)
            operation.bucket = args[0]
            call.work = operation
            return self._work(operation, call)

    def send(self, tensors: list[torch.Tensor], dstRank: int, tag: int = 0) -> Work:
        with self._machine.clocks.mine.stopped():
            return super().send(tensors, dstRank, tag)

    def recv(self, tensors: list[torch.Tensor], srcRank: int, tag: int = 0) -> Work:
        with self._machine.clocks.mine.stopped():
            return super().recv(tensors, srcRank, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        with self._machine.clocks.mine.stopped():
            return super().recv_anysource(tensors, tag)

    def _work(self, inner: Any, call: RecordedCall) -> Work:
        return EmulatedWork(inner, call, self._recorder, self._machine)

    def _tell_when_done(self, inner: Any, call: RecordedCall) -> None:
        """Leave it: the timekeeper knows."""

    def _emulated(
        self, call: RecordedCall, method: str, *args: Any, **kwargs: Any
    ) -> EmulatedOperation:
        """Tell the timekeeper of an operation, and hand it to gloo.

        The timekeeper forgets an operation that gloo refuses. Meanwhile this rank's clock stands,
        so no time has passed in which the operation could have moved anything.
        """
        machine, what = self._machine, call.what
        clock = machine.clocks.mine
        number = next(machine.desk.numbers)
        operation = EmulatedOperation(machine, call, number)
        if machine.memory is not None:
            operation.carry(machine.memory, args)
        after = clock.after() if isinstance(clock, LaterClock) else ()
        ns = 0 if after else clock.now()
        if what.op in ("send", "recv"):
            if what.op == "recv":
                self._await_sources(what.tag)
            if what.op == "recv" and what.peer is None:
                tensors, tag = args
                operation.start_from = lambda source: self._direct(
                    call, "recv", tensors, what.members.index(source), tag
                )
                self._from_anybody.setdefault(tag, []).append(operation)
                machine.desk.when_found(number, operation.source_is_known)
            receives = what.op == "recv"
            message = PostedSend(
                number, ns, what.group, what.peer, what.bytes, what.tag, receives, after
            )
            machine.desk.tell(message)
            if what.op == "send" or what.peer is not None:
                with self._withdrawn_if_refused(message):
                    operation.inner = self._direct(call, method, *args, **kwargs)
            machine.note("post", number, *_posted(what, call.seq))
            return operation
        parts = arguments.unequal_parts(what.op, args, len(what.members))
        part = PostedCollective(
            *(number, ns, what.group, call.seq, what.op, what.bytes, what.members, what.root),
            *(after, *parts),
        )
        machine.desk.tell(part)
        start = self._start_of_callbacks() if after else self._direct
        # gloo's thread would call the modes that count, and lose what is raised below them.
        unseen = torch_private.unseen_by_modes()
        try:
            with self._withdrawn_if_refused(part):
                operation.inner = start(call, method, *args, **kwargs)
        finally:
            del unseen
        if part.sends:
            sends, takes = map(list, parts)
            where = what.group, [*what.members], call.seq
            machine.note("exchange", number, what.op, sends, takes, *where)
        else:
            machine.note("post", number, *_posted(what, call.seq))
        return operation

    @contextmanager
    def _withdrawn_if_refused(self, post: PostedSend | PostedCollective) -> Iterator[None]:
        """A block in which gloo takes an operation that the timekeeper knows, or refuses it."""
        try:
            yield
        except Exception:
            self._machine.desk.tell(Withdrawn(post))
            raise

    def _await_sources(self, tag: int) -> None:
        """Let receives from anybody go first, if what they take has come before this moment."""
        waiting = [each for each in self._from_anybody.pop(tag, []) if not each.started.is_set()]
        while waiting and waiting[0].has_source():
            waiting.pop(0).started.wait()
        if waiting:
            self._from_anybody[tag] = waiting

    def _start_of_callbacks(self) -> Start:
        with self._twin_lock:
            if self._twin is None:
                self._twin = self._make_twin()
            return self._twin


def _posted(what: Call, seq: int) -> tuple[Any, ...]:
    """An operation, as a rank's program has it."""
    group, members = what.group, [*what.members]
    return what.op, what.bytes, group, members, seq, what.root, what.peer, what.tag


class EmulatedOperation:
    """An operation under way on the emulated network, and in gloo."""

    def __init__(self, machine: Machine, call: RecordedCall, number: int) -> None:
        self._machine, self.call, self.number = machine, call, number
        self.inner: Any = None  # gloo's handle
        self.answer: Due | None = None  # once the timekeeper has said when it is done
        self.future: EmulatedFuture | None = None
        self.bucket: list[torch.Tensor] = []  # of DDP's reducer, until it takes the future
        self._carried: list[Held] = []
        self._in_gloo: Carried | None = None
        self._looked_since: int | None = None
        self._source = -1
        self._here = False  # its bytes are
        self.start_from: Callable[[int], Any] | None = None  # of a receive from anybody
        self.started = threading.Event()  # so: handed to gloo
        self._error: Exception | None = None  # that gloo has raised then

    def carry(self, memory: Memory, args: tuple[Any, ...]) -> None:
        """Note what it carries, where a modelled machine's memory is watched."""
        if self._machine.in_backward and self.call.what.op in SUMS:
            memory.note_reduced(args[SUMS[self.call.what.op]])
        self._carried = memory.carried(args)
        if self.call.what.op not in ("send", "recv"):  # no thread of gloo's has a part in these
            self._in_gloo = Carried(memory.tensors_in(args), memory.tensors_in(args[:1]))

    def release(self) -> None:
        """Let go of its future, which nobody will ask it for again."""
        self.future = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done, in emulated time, and its bytes are here."""
        clock = self._machine.clocks.mine
        if isinstance(clock, LaterClock):
            self._take_bytes()
            clock.follow(self)
            return True
        limit = None if timeout is None else clock.now() + int(timeout.total_seconds() * 1e9)
        if not self._is_done(limit):
            assert limit is not None
            clock.jump(limit)
            # gloo reads nothing more from a peer whose message's receive nobody keeps.
            self._machine.given_up.add(self)
            raise RuntimeError(f"Timed out waiting {timeout} for the operation to complete")
        clock.jump(self.done_ns)
        self._machine.note("wait", self.number)
        done = self._take_bytes()
        for held in self._carried:
            held.collected_ns = clock.now()
        if self.future is not None:  # c10d reads its value as soon as the wait is over
            self.future.wait_for_gloo()
        elif self._in_gloo is not None:
            carried, self._in_gloo = self._in_gloo, None
            self.inner = EndedCollective(carried.results)
            carried.wait_for_gloo()
        return done

    def is_completed(self) -> bool:
        """Whether it is done at this time. A look that finds it under way costs a little."""
        clock = self._machine.clocks.mine
        if isinstance(clock, LaterClock):
            return self.inner is not None and bool(self.inner.is_completed())
        with clock.stopped():
            if self._is_done(clock.now()):
                self._take_bytes()
                return True
            if self._looked_since is None:
                self._looked_since = clock.now()
            share = (clock.now() - self._looked_since) // SHARE
            clock.pass_by(min(LOOK_NS + share, LOOK_AT_MOST_NS))
            return False

    def _take_bytes(self) -> bool:
        """Wait for gloo, once: a second wait for a message would wait for the next message."""
        if not self._here:
            self._wait_for_source()
            self._here = bool(self.inner.wait())
            self._machine.given_up.discard(self)
        return self._here

    def get_future(self) -> EmulatedFuture:
        """The operation's future, whose callbacks run when it is done."""
        if self.future is None:
            bucket, self.bucket = self.bucket, []
            self.future = EmulatedFuture(self._machine, self, self.inner, results=bucket)
            self._machine.future_taken(self)
        return self.future

    def ask(self, ns: int) -> None:
        """Find out when it was done, if it was at a time."""
        self._is_done(ns)

    @property
    def done_ns(self) -> int:
        """When it is done; waits for the timekeeper to know."""
        if self.answer is None or self.answer.done_ns is None:
            self._is_done(None)
        done = None if self.answer is None else self.answer.done_ns
        assert done is not None
        return done

    @property
    def over_ns(self) -> int:
        """When it is done, and all callbacks that follow it."""
        moments = [] if self.future is None else self.future.chain.moments
        return max([self.done_ns, *(moment.ns() for moment in moments)])

    def _is_done(self, limit_ns: int | None) -> bool:
        """Whether it is done at the limit, and what is known of it then."""
        if self.answer is None or self.answer.done_ns is None:
            machine = self._machine
            now = machine.clocks.mine.now()
            self.answer = machine.desk.ask(((self.number, 0),), now, limit_ns)
            machine.clocks.mine.jump(self.answer.now_ns)
            if self.answer.done_ns is not None:
                self._write_down(self.answer)
        done = self.answer.done_ns
        return done is not None and (limit_ns is None or done <= limit_ns)

    def _write_down(self, answer: Due) -> None:
        assert answer.done_ns is not None
        self.call.done = answer.done_ns
        self._wait_for_source()

    # Of a receive from anybody

    def has_source(self) -> bool:
        """Whether it is known by now who has sent what it takes."""
        self._is_done(self._machine.clocks.mine.now())
        return self.answer is not None and self.answer.source >= 0

    def source_is_known(self, rank: int) -> None:
        """Hand it to gloo, as a receive from a rank. A thread of the kit's calls this."""
        assert self.start_from is not None
        try:
            self._source = self.call.what.members.index(rank)
            self.inner = self.start_from(rank)
        except Exception as error:
            self._error = error
        self.start_from = None
        self.started.set()

    def _wait_for_source(self) -> None:
        if self.inner is None:
            self.started.wait()
            if self._error is not None:
                raise self._error

    def _source_rank(self) -> int:
        return self._source if self._source >= 0 else torch_private.source_of(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class EmulatedWork(RecordedWork):
    """What an emulated group gives for a call. The rank's clock stands while it waits."""

    def __init__(
        self, inner: EmulatedOperation, call: RecordedCall, recorder: Recorder, machine: Machine
    ) -> None:
        super().__init__(inner, call, recorder)
        self._clocks = machine.clocks

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self._clocks.mine.stopped():
            try:
                return super().wait(timeout)
            finally:
                call = self._call
                call.collected = self._recorder.now(call)
                done, blocked = call.done, call.blocked
                if isinstance(done, int) and isinstance(blocked, int) and done <= blocked:
                    call.blocked = None  # it was done already
                self._recorder.keep(call)

    def get_future(self) -> Any:
        with self._clocks.mine.stopped():
            return super().get_future()
