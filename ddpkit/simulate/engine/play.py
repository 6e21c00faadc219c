"""The engine: plays a `Program` on a `Network`, event by event, to the nanosecond.

This is the only engine. All other computations of times (closed forms in `costs`, arrays in
`rounds`, `replay` for equal ranks) are shortcuts that agree with the engine where they are exact.
The engine moves each message, so it is meant for up to some hundred ranks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ddpkit.asked import not_for
from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.engine.device import COMPUTE, Item
from ddpkit.simulate.engine.network import Network
from ddpkit.simulate.engine.posted import UNKNOWN, End, Part
from ddpkit.simulate.engine.program import (
    BLOCKING,
    MESSAGES,
    Action,
    After,
    CollectivePart,
    Lane,
    Launch,
    MessageEnd,
    Posted,
    Program,
    Resumed,
    Work,
)
from ddpkit.trace import Span, Trace, match_peers

TIMES = (  # exercises that ask for a time which `play_program` would give away
    *("predict", "best_cap", "seconds_per_round", "step_time", "ticks", "bubble", "step_cost"),
)


class Stuck(NamedTuple):
    """A lane that waits forever, and the step at which it waits."""

    rank: int
    lane: str
    step: Action


class Unended(NamedTuple):
    """A step that a rank has posted or launched, and that has not ended."""

    rank: int
    step: Action


@dataclass(frozen=True, repr=False)
class Played:
    """The result of playing a program: the ranks' times, in ns from the common start."""

    program: Program
    links: Links
    ends_ns: tuple[int, ...]  # the end of each rank's last lane; later ends of posts do not count
    stuck: tuple[Stuck, ...]
    unended: tuple[Unended, ...]
    items: tuple[tuple[Launch, Item], ...]  # launches on devices
    collective_parts: tuple[Part, ...]  # parts in collectives, in the order of the posts
    spans: tuple[Span, ...]

    @property
    def ns(self) -> int:
        """The time until the last rank's end, in ns."""
        return max(self.ends_ns, default=0)

    def trace(self) -> Trace:
        """Return the trace of all ranks."""
        facts = {"backend": "simulated", "emulated": str(self.links), **self.program.facts}
        with _no_look_for_garbage():
            return Trace(match_peers(self.spans), self.program.world_size, facts)

    def __repr__(self) -> str:
        return f"<Played {self.program.name}: {self.ns / 1e6:.4g} ms, {self.links}>"


@contextmanager
def _no_look_for_garbage() -> Iterator[None]:
    """Switch Python's garbage collector off for a block that makes many small objects.

    None of these objects is garbage before the end of the block. Each time that the number of
    objects has grown by a quarter, Python would search all objects for garbage, even those of
    torch's modules. For a large program this search takes half of the time.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


def play_program(program: Program, link: LinkSpec, *, keep_ends: bool = False) -> Played:
    """Play a program and return its times; the result's ``stuck`` has lanes that wait forever.

    ``keep_ends``: keep the messages of collectives in ``collective_parts``. Raises ValueError for a
    message with an unknown operation, without a needed peer, or with a peer outside the run.
    """
    with _no_look_for_garbage():
        return _play(program, link, keep_ends)


def _play(program: Program, link: LinkSpec, keep_ends: bool) -> Played:
    not_for(*TIMES)
    links = Links.parse(link, program.world_size)
    network = Network(links, keep_ends=keep_ends)
    ranks = [
        _ProgramRank(network, rank, lanes, program.world_size)
        for rank, lanes in enumerate(program.ranks)
    ]
    for rank in ranks:
        rank.start()
    network.advance()
    return Played(
        program,
        links,
        tuple(max((lane.now for lane in rank.lanes), default=0) for rank in ranks),
        tuple(stuck for rank in ranks for stuck in rank.stuck()),
        tuple(each for rank in ranks for each in rank.unended()),
        tuple(each for rank in ranks for each in rank.launched),
        tuple(what for rank in ranks for _, what, _ in rank.posted if isinstance(what, Part)),
        tuple(span for rank in ranks for span in rank.spans()),
    )


@dataclass(slots=True, eq=False)
class _Handle:
    """The state of a posted step. Lanes may wait for the step, and other steps may follow it."""

    done_ns: int = UNKNOWN
    peer: int | None = None
    blocked_ns: int | None = None  # begin of a lane's wait for the step
    waiting: list[Callable[[], None]] = field(default_factory=list)  # called once the end is known

    def finished(self, what: Any) -> None:
        """Record the end of a message, of a part of a collective, or of an item: `what`."""
        self.peer = getattr(what, "peer", None)
        self.done_at(what.done_ns)

    def done_at(self, ns: int) -> None:
        self.done_ns = ns
        waiting, self.waiting = self.waiting, []
        for tell in waiting:
            tell()


class _ProgramRank:
    """One rank of a program that is being played: its lanes, and the steps it has posted."""

    def __init__(
        self, network: Network, number: int, lanes: Mapping[str, Lane], world_size: int
    ) -> None:
        self.network, self.number, self.world_size = network, number, world_size
        self.posted: list[tuple[MessageEnd | CollectivePart, End | Part, _Handle]] = []
        self.worked: list[tuple[Work, int]] = []
        self.launched: list[tuple[Launch, Item]] = []
        self.taken: list[tuple[Posted | Launch, _Handle]] = []
        self.handles: dict[Hashable, _Handle] = {}
        self.lanes = [_RunningLane(self, name, lane) for name, lane in lanes.items()]

    def start(self) -> None:
        for lane in self.lanes:
            self.network.call(0, self.number, lane.go_on)

    def handle(self, name: Hashable) -> _Handle:
        return self.handles.setdefault(name, _Handle())

    def new_handle(self, name: Hashable) -> _Handle:
        """Return a new handle for a step. An earlier step of the same name must have ended."""
        if name is None:
            return _Handle()
        found = self.handles.get(name)
        if found is None or found.done_ns != UNKNOWN:
            found = self.handles[name] = _Handle()
        return found

    def begin(self, step: Posted | Launch, now: int) -> _Handle:
        """Post or launch a step once all steps that it follows have ended; return its handle."""
        turn, handle = len(self.taken), self.new_handle(step.handle)
        self.taken.append((step, handle))
        follows = [self.handle(name) for name in step.follows]
        unknown = [each for each in follows if each.done_ns == UNKNOWN]
        left = len(unknown)

        def begin() -> None:
            ns = max([now, *(each.done_ns for each in follows)])
            if isinstance(step, Launch):
                self._launch(step, ns, turn, handle)
            else:
                self._post(step, ns, handle)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                begin()

        for each in unknown:
            each.waiting.append(one_done)
        if not unknown:
            begin()
        return handle

    def _launch(self, step: Launch, ns: int, turn: int, handle: _Handle) -> None:
        item = self.network.launch(ns, self.number, step.place, step.ns, turn, step.priority)
        item.then = handle.finished
        self.launched.append((step, item))

    def _post(self, step: Posted, now: int, handle: _Handle) -> None:
        """Post a message, or a part in a collective, at the time `now`."""
        what: Any
        if isinstance(step, CollectivePart):
            what = self.network.enter(
                now, step.group, step.number, self.number, step.members, step.schedule,
                step.itemsize, together=step.together, after_all=step.after_all,
            )  # fmt: skip
        else:
            what = self._message(step, now)
        if what.done_ns == UNKNOWN:
            what.then = handle.finished
        else:
            handle.finished(what)
        self.posted.append((step, what, handle))

    def _message(self, step: MessageEnd, now: int) -> End:
        if step.op not in MESSAGES:
            raise ValueError(
                f"rank {self.number} cannot post {step}: op must be one of {', '.join(MESSAGES)}"
            )
        if step.peer is None and step.op.endswith("send"):
            raise ValueError(f"rank {self.number} cannot post {step}: a send needs a peer")
        if step.peer is not None and step.peer not in range(self.world_size):
            raise ValueError(
                f"rank {self.number} cannot post {step}: the peer is rank {step.peer}, but the "
                f"ranks of the program are 0 to {self.world_size - 1}"
            )
        network, tag = self.network, step.tag
        if step.op.endswith("recv"):
            return network.recv(now, step.group, self.number, step.peer, step.nbytes, tag)
        assert step.peer is not None
        return network.send(now, step.group, self.number, step.peer, step.nbytes, tag)

    def stuck(self) -> Iterator[Stuck]:
        for lane in self.lanes:
            if lane.step is not None:
                yield Stuck(self.number, lane.name, lane.step)

    def unended(self) -> Iterator[Unended]:
        return (Unended(self.number, s) for s, handle in self.taken if handle.done_ns == UNKNOWN)

    def spans(self) -> list[Span]:
        """Return the spans of the rank, in the order of their starts."""
        rank = self.number
        spans = [
            Span(rank, "compute", work.name, work.kind, start, start + work.ns, work.bytes,
                 args=dict(work.facts))
            for work, start in self.worked
            if work.name
        ]  # fmt: skip
        spans += [
            Span(rank, "compute", step.name, step.kind, item.start_ns, item.done_ns,
                 args=dict(step.facts))
            for step, item in self.launched
            if step.place == COMPUTE and item.done_ns != UNKNOWN
        ]  # fmt: skip
        spans += [
            self._span(step, what, handle.blocked_ns)
            for step, what, handle in self.posted
            if what.done_ns != UNKNOWN
        ]
        return sorted(spans, key=lambda span: span.start_ns)

    def _span(self, step: MessageEnd | CollectivePart, what: Any, since: int | None) -> Span:
        blocked = since if since is not None and since <= what.done_ns else None
        times = what.posted_ns, what.done_ns
        if isinstance(step, MessageEnd):
            return Span(
                self.number, "comm", step.op, "comm", *times, what.nbytes, what.peer, step.group,
                blocked_ns=blocked, args={"tag": step.tag, **step.facts},
            )  # fmt: skip
        return Span(
            self.number, "comm", step.schedule.operation, "comm", *times, step.nbytes,
            group=step.group, seq=step.number + 1, blocked_ns=blocked,
            args={"group_size": len(step.members), **step.facts},
        )  # fmt: skip


class _RunningLane:
    """A lane that is being played: it does one step after another until a step makes it wait."""

    def __init__(self, rank: _ProgramRank, name: str, lane: Lane) -> None:
        self.rank, self.name, self.now = rank, name, 0
        self.step: Action | None = None  # the present step; None after the last
        self._steps: Any = lane() if callable(lane) else iter(lane)
        self._decides = callable(lane)
        self._awaited: Sequence[_Handle] = ()
        self._left = 0
        self._done: _Handle | None = None  # handle of the work in progress
        self._began = False

    def go_on(self, now: int) -> None:
        """Do the lane's next steps, until a step makes the lane wait."""
        self.now = now
        if self._done is not None:
            done, self._done = self._done, None
            done.done_at(now)
        while True:
            self.step = self._next()
            if self.step is None or not self._take(self.step):
                return

    def _next(self) -> Action | None:
        if not self._decides or not self._began:
            self._began = True
            found: Action | None = next(self._steps, None)
            return found
        peer = self._awaited[0].peer if self._awaited else None
        try:
            told: Action = self._steps.send(Resumed(self.now, peer))
        except StopIteration:
            return None
        return told

    def _take(self, step: Action) -> bool:
        """Do one step; return True if the lane can do its next step at once."""
        rank, self._awaited = self.rank, ()
        if isinstance(step, Work):
            rank.worked.append((step, self.now))
            self._done = rank.new_handle(step.handle)
            rank.network.call(self.now + step.ns, rank.number, self.go_on)
            return False
        if isinstance(step, After):
            return self._wait([rank.handle(name) for name in step.handles])
        handle = rank.begin(step, self.now)
        if isinstance(step, Launch):
            return True
        holds = step.op in BLOCKING if isinstance(step, MessageEnd) else not step.async_op
        return self._wait([handle]) if holds else True

    def _wait(self, handles: Sequence[_Handle]) -> bool:
        """Make the lane wait for the steps of `handles`; return True if all have ended by now."""
        self._awaited = handles
        unknown = [handle for handle in handles if handle.done_ns == UNKNOWN]
        self._left = len(unknown)
        for handle in handles:
            if handle.blocked_ns is None:
                handle.blocked_ns = self.now
        for handle in unknown:
            handle.waiting.append(self.one_done)
        if not unknown:
            return self._until()
        return False

    def one_done(self) -> None:
        """Count one of the awaited steps as ended; after the last one, resume the lane."""
        self._left -= 1
        if not self._left and self._until():
            self.rank.network.call(self.now, self.rank.number, self.go_on)

    def _until(self) -> bool:
        """Return True if all awaited steps have ended by now; else resume the lane at their end."""
        until = max((handle.done_ns for handle in self._awaited), default=0)
        if until <= self.now:
            return True
        self.rank.network.call(until, self.rank.number, self.go_on)
        return False
