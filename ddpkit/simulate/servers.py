"""Parameter servers on emulated links: workers pull, compute and push, and servers answer.

Each rank is a program that posts sends and receives on a `Network`, as a real rank does: so times
are those of an emulated cluster whose ranks do the same (lab 08's `push`, `pull` and `serve`).

A worker asks every server for its chunk of the parameters, computes, and sends each server its
chunk of the gradient. A server takes requests from any worker, as they come. It sends an answer and
goes on; an answer waits until the worker is at most `bound` pushes ahead of the slowest: 0 is a
synchronous server, infinity an asynchronous one (Ho et al., More Effective Distributed ML via a
Stale Synchronous Parallel Parameter Server, NeurIPS 2013). Adding up takes no time.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.network import Network
from ddpkit.simulate.posted import UNKNOWN, End
from ddpkit.text import count
from ddpkit.trace import Scalar, Span, Trace, match_peers

HEADER, DATA = 1, 2  # tags
HEADER_BYTES = 8
PUSH, PULL, DONE = range(3)

Compute: TypeAlias = int | Callable[[int, int], int]  # ns, or of a rank and its round
Program: TypeAlias = Iterator[int | list[End]]  # gives what it waits for: some ns, or messages


@dataclass(frozen=True, repr=False)
class Served:
    """What parameter servers and their workers did. Servers are the first ranks."""

    servers: int
    workers: int
    ages: tuple[tuple[int, int], ...]  # (worker, age), in the order of the first server's pushes
    done_ns: int  # the last push is in
    trace: Trace

    @property
    def gradients_per_s(self) -> float:
        """How many gradients came in a second."""
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
    """Simulate servers that hold ``nbytes`` of parameters together, and workers that train.

    Ranks 0 to ``servers`` - 1 are servers, the others workers. ``compute_ns`` is how long a
    gradient takes, in ns: a number, or a function of the worker's rank and the round.
    ``slow={3: 4}``: worker 3 takes 4 times as long. A worker makes ``rounds`` rounds (None: without
    end), and begins none after ``seconds``. An age is the number of pushes between a worker's pull
    and its push. Raises ValueError for numbers that make no run, as no worker or no end.
    """
    if workers < 1 or servers < 1:
        raise ValueError(
            "there is at least one worker and one server: "
            f"{count(workers, 'worker')}, {count(servers, 'server')}"
        )
    if rounds is None and seconds == math.inf:
        raise ValueError("workers that make rounds without end need seconds= to end")
    if bound < 0:
        raise ValueError(f"a bound is how far a worker may be ahead, 0 or more: {bound}")
    play = _Play(Links.parse(link, servers + workers), servers, workers)
    each, rest = divmod(nbytes, servers)
    chunks = [each + (server < rest) for server in range(servers)]
    factors = slow or {}

    def compute(worker: int, number: int) -> int:
        own = compute_ns(worker, number) if callable(compute_ns) else compute_ns
        return round(own * factors.get(worker, 1))

    clocks = [_Clocks(play.worker_ranks, bound) for _ in range(servers)]
    for server in range(servers):
        play.start(server, _server(play.rank(server), chunks[server], clocks[server]))
    for worker in play.worker_ranks:
        how_long = (rounds if rounds is not None else math.inf, seconds * 1e9)
        play.start(worker, _worker(play.rank(worker), chunks, compute, how_long))
    play.network.advance()
    return Served(
        servers,
        workers,
        tuple(clocks[0].ages),
        max((clock.last_ns for clock in clocks), default=0),
        play.trace(),
    )


@dataclass
class _Clocks:
    """When a server answers whom: how often each worker that is not done has pushed."""

    workers: Sequence[int]
    bound: float
    ages: list[tuple[int, int]] = field(default_factory=list)
    last_ns: int = 0  # of the pushes

    def __post_init__(self) -> None:
        self._pushes = dict.fromkeys(self.workers, 0)
        self._pulled = dict.fromkeys(self.workers, 0)  # how many pushes there were by then

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


class _Play:
    """The programs of all ranks, on one network."""

    def __init__(self, links: Links, servers: int, workers: int) -> None:
        self.network, self.links, self.servers = Network(links), links, servers
        self.worker_ranks = tuple(range(servers, servers + workers))
        # What the headers say that are under way, by sender and receiver.
        self.requests: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        self.ranks: dict[int, _Rank] = {}

    def rank(self, number: int) -> _Rank:
        return self.ranks.setdefault(number, _Rank(self, number))

    def start(self, number: int, program: Program) -> None:
        rank = self.rank(number)
        rank.program = program
        self.network.call(0, number, rank.go_on)

    def trace(self) -> Trace:
        facts: dict[str, Scalar] = {
            "backend": "simulated",
            "emulated": str(self.links),
            "servers": self.servers,
        }
        spans = [span for _, rank in sorted(self.ranks.items()) for span in rank.spans()]
        return Trace(match_peers(spans), len(self.links), facts)


class _Rank:
    """One rank's program: it posts at its own time, and goes on when what it waits for is done."""

    program: Program

    def __init__(self, play: _Play, number: int) -> None:
        self.play, self.number, self.now = play, number, 0
        self._posted: list[tuple[str, int, End]] = []
        self._computed: list[tuple[int, int]] = []

    def send(self, dst: int, nbytes: int, tag: int) -> End:
        end = self.play.network.send(self.now, "", self.number, dst, nbytes, tag)
        self._posted.append(("isend", tag, end))
        return end

    def ask(self, dst: int, request: int) -> End:
        """Send a header that says what is wanted."""
        self.play.requests[self.number, dst].append(request)
        return self.send(dst, HEADER_BYTES, HEADER)

    def recv(self, src: int | None, nbytes: int, tag: int) -> End:
        end = self.play.network.recv(self.now, "", self.number, src, nbytes, tag)
        self._posted.append(("recv", tag, end))
        return end

    def go_on(self, now: int) -> None:
        """Run the program until it waits again."""
        self.now = now
        awaited = next(self.program, None)
        if isinstance(awaited, int):
            self._computed.append((now, now + awaited))
            self.play.network.call(now + awaited, self.number, self.go_on)
        elif awaited is not None:
            self._wait(awaited)

    def _wait(self, ends: list[End]) -> None:
        """Go on when all of them are done; they were posted just now, so none is."""
        left = len(ends)

        def one_done(_: End) -> None:
            nonlocal left
            left -= 1
            if not left:
                until = max(end.done_ns for end in ends)
                self.play.network.call(until, self.number, self.go_on)

        for end in ends:
            end.then = one_done

    def spans(self) -> list[Span]:
        """What the rank did, in the order of time."""
        spans = [
            Span(self.number, "compute", "gradient", "span", start, end)
            for start, end in self._computed
        ]
        for name, tag, end in self._posted:
            if end.done_ns != UNKNOWN:
                blocked = end.posted_ns if name == "recv" else None
                spans.append(
                    Span(self.number, "comm", name, "comm", end.posted_ns, end.done_ns,
                         bytes=end.nbytes, peer=end.peer, blocked_ns=blocked, args={"tag": tag})
                )  # fmt: skip
        return sorted(spans, key=lambda span: (span.start_ns, span.end_ns))


def _worker(
    rank: _Rank,
    chunks: Sequence[int],
    compute: Callable[[int, int], int],
    how_long: tuple[float, float],
) -> Program:
    """Pull, compute and push, for so many rounds, or until so many ns."""
    rounds, until_ns = how_long
    number = 0
    while number < rounds and rank.now < until_ns:
        asked = []
        for server, nbytes in enumerate(chunks):
            asked += [rank.ask(server, PULL), rank.recv(server, nbytes, DATA)]
        yield asked
        yield compute(rank.number, number)
        sent = []
        for server, nbytes in enumerate(chunks):
            sent += [rank.ask(server, PUSH), rank.send(server, nbytes, DATA)]
        yield sent
        number += 1
    for server in range(len(chunks)):
        yield [rank.ask(server, DONE)]


def _server(rank: _Rank, nbytes: int, clocks: _Clocks) -> Program:
    """Answer the workers until all are done."""
    active = set(rank.play.worker_ranks)
    waiting: list[int] = []
    while active:
        header = rank.recv(None, HEADER_BYTES, HEADER)
        yield [header]
        worker = header.peer
        request = rank.play.requests[worker, rank.number].popleft()
        if request == PUSH:
            yield [rank.recv(worker, nbytes, DATA)]
            clocks.push(worker, rank.now)
        elif request == DONE:
            active.remove(worker)
            clocks.done(worker)
        else:
            waiting.append(worker)
        for each in [other for other in waiting if clocks.may_pull(other)]:
            waiting.remove(each)
            clocks.pull(each)
            rank.send(each, nbytes, DATA)
