"""Parameter servers on emulated links: workers pull, compute and push, and servers answer.

Each rank is a lane of a `Program`. A lane decides its next step while it is played, and posts sends
and receives like a real rank. So the times equal those of an emulated cluster with ranks that run
the same code (lab 08's `push`, `pull` and `serve`).

A worker asks every server for the server's chunk of the parameters, computes, and sends each server
the same chunk of the gradient. A server takes requests from any worker in the order of arrival,
sends an answer, and goes on. An answer waits until the worker is at most `bound` pushes ahead of
the slowest worker: 0 is a synchronous server, infinity an asynchronous server (Ho et al., More
Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NeurIPS 2013). Adding up
takes no time.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from ddpkit.link import LinkSpec
from ddpkit.simulate.engine.play import play_program
from ddpkit.simulate.engine.program import Action, After, Lane, MessageEnd, Program, Resumed, Work
from ddpkit.text import count
from ddpkit.trace import Trace

HEADER, DATA = 1, 2  # tags of messages
HEADER_BYTES = 8
PUSH, PULL, DONE = range(3)
MOVED = ("asked", "data")  # handles of the steps for which a worker waits, for each server

Compute: TypeAlias = int | Callable[[int, int], int]  # ns, or a function of a rank and its round


@dataclass(frozen=True, repr=False)
class Served:
    """The result of simulating parameter servers and their workers. Servers are the first ranks."""

    servers: int
    workers: int
    ages: tuple[tuple[int, int], ...]  # (worker, age) of each push to the first server, in order
    done_ns: int  # the time at which the last push is in
    trace: Trace

    @property
    def gradients_per_s(self) -> float:
        """The mean number of gradients per second that reached the first server."""
        return len(self.ages) / (self.done_ns / 1e9)

    def __repr__(self) -> str:
        return (
            f"<Served: {count(self.workers, 'worker')}, {count(self.servers, 'server')}, "
            f"{count(len(self.ages), 'gradient')} in {self.done_ns / 1e6:.4g} ms>"
        )


def parameter_server(
    workers: int,
    servers: int,
    nbytes: int,
    compute_ns: Compute,
    link: LinkSpec,
    *,
    bound: float = 0,
    rounds: int | None = 1,
    seconds: float = math.inf,
    slow: Mapping[int, float] | None = None,
) -> Served:
    """Return the simulation of workers that train, and of servers with the parameters.

    All servers together hold ``nbytes`` of parameters.

    Ranks 0 to ``servers`` - 1 are servers, all others are workers. ``compute_ns`` is the time of a
    gradient in ns: a number, or a function of the worker's rank and the round. ``slow={3: 4}``:
    worker 3 takes 4 times as long. A worker makes ``rounds`` rounds (None: no limit), and begins no
    round after ``seconds``. The result has the age of each push: the number of other pushes between
    a worker's pull and its push. Raises ValueError for arguments that make no run, such as no
    worker or no end.
    """
    if workers < 1 or servers < 1:
        raise ValueError(
            "give at least one worker and one server, not "
            f"{count(workers, 'worker')}, {count(servers, 'server')}"
        )
    if rounds is None and seconds == math.inf:
        raise ValueError("give rounds= or seconds=: without a limit, the workers never end")
    if bound < 0:
        raise ValueError(
            f"bound= is the number of rounds by which a worker may lead, 0 or more, not {bound}"
        )
    each, rest = divmod(nbytes, servers)
    chunks = [each + (server < rest) for server in range(servers)]
    factors = slow or {}

    def compute(worker: int, number: int) -> int:
        own = compute_ns(worker, number) if callable(compute_ns) else compute_ns
        return round(own * factors.get(worker, 1))

    how_long = (rounds if rounds is not None else math.inf, seconds * 1e9)
    desk = _Desk(tuple(range(servers, servers + workers)), bound)
    played = play_program(server_program(desk, chunks, compute, how_long), link)
    return Served(
        servers,
        workers,
        tuple(desk.clocks[0].ages),
        max(clock.last_ns for clock in desk.clocks.values()),
        played.trace(),
    )


def server_program(
    desk: _Desk,
    chunks: Sequence[int],
    compute: Callable[[int, int], int],
    how_long: tuple[float, float],
) -> Program:
    """Return the program of the servers, one for each chunk, and of the workers in `desk`."""
    servers: list[Lane] = [
        partial(_server, desk, server, nbytes) for server, nbytes in enumerate(chunks)
    ]
    workers = [partial(_worker, desk, rank, chunks, compute, how_long) for rank in desk.workers]
    program = Program.of_lanes("parameter servers", [*servers, *workers])
    return replace(program, facts={"servers": len(chunks)})


@dataclass
class _Clocks:
    """A server's counts of the workers' pushes, which decide when a worker may pull."""

    workers: Sequence[int]
    bound: float
    ages: list[tuple[int, int]] = field(default_factory=list)
    last_ns: int = 0  # time of the last push

    def __post_init__(self) -> None:
        self._pushes = dict.fromkeys(self.workers, 0)
        # worker -> number of all pushes before the worker's last pull
        self._pulled = dict.fromkeys(self.workers, 0)

    def push(self, worker: int, now: int) -> None:
        self.ages.append((worker, len(self.ages) - self._pulled[worker]))
        self._pushes[worker] += 1
        self.last_ns = now

    def pull(self, worker: int) -> None:
        self._pulled[worker] = len(self.ages)

    def done(self, worker: int) -> None:
        del self._pushes[worker]

    def may_pull(self, worker: int) -> bool:
        return self._pushes[worker] - min(self._pushes.values()) <= self.bound


@dataclass
class _Desk:
    """Data that the lanes of servers and workers share while they are played."""

    workers: tuple[int, ...]  # the workers' ranks
    bound: float
    clocks: dict[int, _Clocks] = field(default_factory=dict)  # server -> its clocks
    # Contents of headers under way, by sender and receiver.
    requests: dict[tuple[int, int], deque[int]] = field(default_factory=lambda: defaultdict(deque))

    def ask(self, worker: int, server: int, request: int) -> MessageEnd:
        """Return the step that sends a worker's request to a server, as a small message."""
        self.requests[worker, server].append(request)
        return MessageEnd("isend", server, HEADER_BYTES, HEADER, handle=(server, "asked"))


def _worker(
    desk: _Desk,
    rank: int,
    chunks: Sequence[int],
    compute: Callable[[int, int], int],
    how_long: tuple[float, float],
) -> Generator[Action, Resumed, None]:
    """Yield a worker's steps: pull, compute, push, for a number of rounds or until a time in ns."""
    rounds, until_ns = how_long
    number, now = 0, 0
    all_moved = After(tuple((server, what) for server in range(len(chunks)) for what in MOVED))
    while number < rounds and now < until_ns:
        for server, nbytes in enumerate(chunks):
            yield desk.ask(rank, server, PULL)
            yield MessageEnd("irecv", server, nbytes, DATA, handle=(server, "data"))
        yield all_moved
        yield Work(compute(rank, number), "gradient")
        for server, nbytes in enumerate(chunks):
            yield desk.ask(rank, server, PUSH)
            yield MessageEnd("isend", server, nbytes, DATA, handle=(server, "data"))
        now = (yield all_moved).ns
        number += 1
    for server in range(len(chunks)):
        yield desk.ask(rank, server, DONE)
        yield After(((server, "asked"),))


def _server(desk: _Desk, rank: int, nbytes: int) -> Generator[Action, Resumed, None]:
    """Yield a server's steps: it answers the workers until all workers are done."""
    clocks = desk.clocks[rank] = _Clocks(desk.workers, desk.bound)
    active = set(desk.workers)
    waiting: list[int] = []
    while active:
        worker = (yield MessageEnd("recv", None, HEADER_BYTES, HEADER)).peer
        assert worker is not None
        request = desk.requests[worker, rank].popleft()
        if request == PUSH:
            moment = yield MessageEnd("recv", worker, nbytes, DATA)
            clocks.push(worker, moment.ns)
        elif request == DONE:
            active.remove(worker)
            clocks.done(worker)
        else:
            waiting.append(worker)
        for each in [other for other in waiting if clocks.may_pull(other)]:
            waiting.remove(each)
            clocks.pull(each)
            yield MessageEnd("isend", each, nbytes, DATA)
