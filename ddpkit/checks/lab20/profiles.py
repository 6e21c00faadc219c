"""Lab 20: traces with one large performance problem and a small one, and the large one's name.

The lesson calls the large problem the limit of the trace. All traces have four ranks and one step.
The args of a kernel are its FLOPs, its bytes and the moment of its launch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.trace import Trace
from ddpkit.trace.intervals import subtract, total
from ddpkit.trace.span import Span

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

RANKS, RIDGE = 4, 300
Limit = tuple[str, int]


class _Step:
    """The spans of a step under construction."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.spans, self.seq = rng, list[Span](), 0

    def kernel(
        self, rank: int, start: int, ns: int, intensity: float = 1000, before: int = 9000
    ) -> int:
        """Add a kernel that starts `before` ns after its launch; return the end of the kernel."""
        nbytes = 1000 * ns
        args = {"flops": round(intensity * nbytes), "bytes": nbytes, "launched_ns": start - before}
        self.spans.append(Span(rank, "compute", "kernel", "span", start, start + ns, args=args))
        return start + ns

    def kernels(self, rank: int, start: int, end: int, intensity: float = 1000) -> int:
        """Fill the time from `start` to `end` with kernels of 5 to 20 us; return the end."""
        while end - start > 25_000:
            start = self.kernel(rank, start, self.rng.randrange(5_000, 20_000), intensity)
        return self.kernel(rank, start, end - start, intensity)

    def late(self, rank: int, start: int, intensity: float = 1000) -> int:
        """Add a short kernel that starts at its launch; return the end of the kernel."""
        return self.kernel(rank, start, self.rng.randrange(1_500, 3_000), intensity, before=0)

    def meet(self, posts: Sequence[int], moves: int, name: str = "all_reduce") -> int:
        """Add a collective; the ranks post it at the moments `posts`. Return its end."""
        ready = max(posts)
        for rank, post in enumerate(posts):
            self.spans.append(
                Span(rank, "comm", name, "comm", post, ready + moves, 4 * moves, group="world",
                     seq=self.seq, ready_ns=ready)
            )  # fmt: skip
        self.seq += 1
        return ready + moves

    def message(self, source: int, to: int, sent: int, posted: int, moves: int) -> int:
        """Add a send and a receive; return the end of the receive."""
        ready, group = max(sent, posted), f"{source} {to}"
        for rank, name, post, peer in ((source, "isend", sent, to), (to, "recv", posted, source)):
            self.spans.append(
                Span(rank, "comm", name, "comm", post, ready + moves, moves, peer=peer,
                     group=group, seq=self.seq, ready_ns=ready)
            )  # fmt: skip
        self.seq += 1
        return ready + moves

    def trace(self) -> Trace:
        """Return the trace of the step."""
        return Trace(tuple(sorted(self.spans, key=lambda s: (s.rank, s.start_ns))), RANKS)


def launches(rng: random.Random) -> Trace:
    """Return a trace of short kernels that wait for slow launches, and of a small all-reduce.

    All ranks start at the same moment, so that no rank is idle before its first kernel.
    """
    made, ends = _Step(rng), []
    for rank in range(RANKS):
        at = end = 0
        for number in range(40):
            at += rng.randrange(5_500, 6_500) if number else 6_000
            end = made.late(rank, at, rng.choice((120, 1000)))
        ends.append(end)
    made.meet(ends, rng.randrange(8_000, 14_000))
    return made.trace()


def straggler(rng: random.Random) -> Trace:
    """Return a trace with one rank that computes twice as long; two all-reduces wait for it."""
    made, each, slow = _Step(rng), rng.randrange(180_000, 230_000), rng.randrange(RANKS)
    posts = []
    for rank in range(RANKS):
        at = made.kernels(rank, 0, 12_000, rng.randrange(60, 150))
        long = (2 if rank == slow else 1) * each + rng.randrange(4_000)
        posts.append(made.kernels(rank, at, at + long))
    first = made.meet(posts, rng.randrange(5_000, 8_000))
    made.meet([post + 500 for post in posts], first - max(posts) + rng.randrange(4_000, 8_000))
    return made.trace()


def network(rng: random.Random) -> Trace:
    """Return a trace of four all-reduces that kernels hide only in part."""
    made, moves = _Step(rng), rng.randrange(80_000, 100_000)
    first = rng.randrange(90_000, 120_000)
    posts = [made.kernels(rank, 0, first + rng.randrange(3_000)) for rank in range(RANKS)]
    end = max(posts)
    for number in range(4):
        end = made.meet([post + 100 * number for post in posts], end - max(posts) + moves)
    for rank, post in enumerate(posts):
        at = made.kernels(rank, post, post + rng.randrange(130_000, 150_000))
        for _ in range(3):
            at = made.late(rank, at + rng.randrange(2_000, 3_000))
    return made.trace()


def memory(rng: random.Random) -> Trace:
    """Return a trace of mostly memory-bound kernels, and of ranks that wait a little."""
    made, posts = _Step(rng), []
    for rank in range(RANKS):
        at = 0
        for _ in range(6):
            at = made.kernels(rank, at, at + rng.randrange(26_000, 30_000))
            at = made.kernels(rank, at, at + rng.randrange(52_000, 60_000), rng.randrange(60, 150))
        posts.append(at)
    made.meet(posts, rng.randrange(6_000, 12_000))
    return made.trace()


def bubble(rng: random.Random) -> Trace:
    """Return a trace of a pipeline: all forwards, all backwards, and then more work of stage 0."""
    made, one = _Step(rng), rng.randrange(16_000, 20_000)
    moves, micros = rng.randrange(1_000, 2_000), 4
    free = [0] * RANKS
    for way, ns in (("forward", one), ("backward", 2 * one)):
        order = list(range(RANKS)) if way == "forward" else list(range(RANKS))[::-1]
        done = [[0] * micros for _ in range(RANKS)]
        for place, rank in enumerate(order):
            for micro in range(micros):
                at = free[rank]
                if place:
                    before = order[place - 1]
                    at = made.message(before, rank, done[before][micro], at, moves)
                took = ns + rng.randrange(-300, 300)
                free[rank] = done[rank][micro] = made.kernel(rank, at, took)
    made.kernels(0, free[0], free[0] + 13 * one)
    return made.trace()


TROUBLES: dict[str, Callable[[random.Random], Trace]] = {
    "launches": launches,
    "straggler": straggler,
    "network": network,
    "memory": memory,
    "bubble": bubble,
}


def drawn(rng: random.Random) -> list[Trace]:
    """Return one trace of each problem, in random order; each mistake gives different limits."""
    while True:
        found = [make(rng) for make in TROUBLES.values()]
        rng.shuffle(found)
        rows = [tuple(limit(each, **idea) for each in found) for idea in IDEAS.values()]
        right = tuple(map(limit, found))
        names = sorted(name for name, _ in right)
        if len({right, *rows}) == len(rows) + 1 and names == sorted(TROUBLES):
            return found


IDEAS: dict[str, dict[str, object]] = {
    "waiting is not moving": {"from_start": True},
    "idle": {"all_idle": True},
    "all of it": {"whole": True},
    "hidden too": {"hidden": True},
    "of one rank, sum": {"over": "sum"},
    "of one rank, mean": {"over": "mean"},
    "no bubble": {"bubble": False},
    "bubble as straggler": {"bubble": "straggler"},
}


def gains(trace: Trace, **by_mistake: Any) -> list[Counter[str]]:
    """Return, for each rank, the ns that solving each problem could gain; keywords add mistakes."""
    found = []
    for rank in trace.ranks:
        spans = trace.of(rank)
        work = [s for s in spans if s.is_compute]
        ops = [s for s in spans if s.is_comm]
        busy = [(s.start_ns, s.end_ns) for s in work]
        calls = [(o.start_ns, o.end_ns) for o in ops]
        bytes_move = calls if by_mistake.get("from_start") else [
            (o.ready_ns or 0, o.end_ns) for o in ops]  # fmt: skip
        moving = subtract(bytes_move, [] if by_mistake.get("hidden") else busy)
        idle = subtract([trace.window_of(rank)], busy + calls)
        late = {s.start_ns for s in work if s.start_ns == s.args["launched_ns"]}

        def waits(collective: bool, ops: Any = ops, busy: Any = busy, moving: Any = moving) -> int:
            posted = [(o.start_ns, o.ready_ns) for o in ops if o.is_collective == collective]
            return total(subtract(posted, busy + moving))

        mine = Counter(
            memory=round(sum(s.duration_ns * _share(s, by_mistake) for s in work)),
            launches=sum(
                end - start for start, end in idle if end in late or by_mistake.get("all_idle")
            ),
            network=total(moving),
            straggler=waits(True),
        )
        wait = by_mistake.get("bubble", True)
        mine["straggler" if wait == "straggler" else "bubble"] += waits(False) if wait else 0
        found.append(mine)
    return found


def _share(span: Span, by_mistake: Any) -> float:
    share = max(0.0, 1 - float(span.args["flops"]) / float(span.args["bytes"]) / RIDGE)
    return float(share > 0) if by_mistake.get("whole") else share


def limit(trace: Trace, **by_mistake: object) -> Limit:
    """Return the name and the ns of the largest gain on any rank; keywords add mistakes."""
    by_rank, most = gains(trace, **by_mistake), Counter[str]()
    for mine in by_rank:
        most = most + mine if "over" in by_mistake else most | mine
    if by_mistake.get("over") == "mean":
        most = Counter({name: ns // len(by_rank) for name, ns in most.items()})
    return most.most_common(1)[0]


def asked(answer: Answer, traces: Sequence[Trace], ridge: float) -> dict[str, object]:
    """Return the answer's limits and gains for these traces."""
    found = [answer(trace, ridge) for trace in traces]
    return {"limits": [each[0] for each in found], "ns": [each[1] for each in found]}
