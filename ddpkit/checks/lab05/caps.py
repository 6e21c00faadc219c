"""Which cap is best, by the right model of the network and by wrong ones that people write."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from ddpkit.checks.lab05.rules import MB, Rule

CAPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class CapProblem:
    """What `best_cap` is asked."""

    caps: tuple[float, ...]
    ready: tuple[float, ...]  # s
    sizes: tuple[int, ...]  # bytes
    latency: float  # s
    bandwidth: float  # bytes/s
    world_size: int

    def done(self, cap: float) -> float:
        """When the last all-reduce is done, in s: by the kit's simulator."""
        from ddpkit.simulate import Gradient, Link, Step, assign_buckets, replay

        gradients = tuple(
            Gradient(str(i), size, round(at * 1e9))
            for i, (at, size) in enumerate(zip(self.ready, self.sizes, strict=True))
        )
        link = Link(self.latency, self.bandwidth)
        buckets = assign_buckets(gradients, cap, cap)
        return (
            replay(Step(0, gradients), self.world_size, link, buckets).all_reduces[-1].done_ns / 1e9
        )

    def best(self) -> float:
        return min(self.caps, key=self.done)

    def clear(self) -> bool:
        """Whether the best is so by 1 %: rounding must not decide, nor which of two is first."""
        first, second = sorted(map(self.done, self.caps))[:2]
        return second > 1.01 * first


IN_ORDER = Rule(reverse=False)  # gradients are put in as they become ready


@dataclass(frozen=True)
class Model:
    """A wrong idea of how long it takes."""

    ready: str = "the last"  # of a bucket's gradients that is waited for: "the first", "none"
    queue: bool = True  # ... and for the all-reduce before
    ends: str = "with the latest"  # or "with the last" all-reduce, whichever it is that ends latest
    rule: Rule = IN_ORDER
    alphas: Callable[[int], float] = lambda n: 2 * (n - 1)  # latencies, of n ranks
    wires: Callable[[int], float] = lambda n: 2 * (n - 1) / n  # how often the bytes go over a link

    def best(self, problem: CapProblem) -> float:
        return min(problem.caps, key=lambda cap: self.done(problem, cap))

    def done(self, problem: CapProblem, cap: float) -> float:
        n, free, last = problem.world_size, 0.0, 0.0
        kinds = [(None, "")] * len(problem.sizes)
        for members in self.rule.filled(kinds, problem.sizes, cap, cap):
            ready = {"the last": problem.ready[members[-1]], "the first": problem.ready[members[0]]}
            start = max(ready.get(self.ready, 0.0), free if self.queue else 0.0)
            nbytes = sum(problem.sizes[i] for i in members)
            free = start + self.alphas(n) * problem.latency
            free += self.wires(n) * nbytes / problem.bandwidth
            last = free if self.ends == "with the last" else max(last, free)
        return last


QUEUE = (
    "All-reduces go one after the other: one starts when the one before it is done, even if its "
    "own gradients were ready earlier."
)
LATENCIES = "An all-reduce takes 2(n - 1) messages in a row, and so many latencies."
BYTES = "Of a bucket's B bytes 2(n - 1)/n go over each link: 2(n - 1)/n · B / bandwidth."

# fmt: off
WRONG_MODELS: tuple[tuple[str, Model, str], ...] = (
    ("not ready", Model(ready="none"),
     "An all-reduce cannot start before the last gradient of its bucket is ready, whatever came "
     "first: take the later of that and the end of the one before."),
    ("first is ready", Model(ready="the first"),
     "An all-reduce cannot start before the last gradient of its bucket is ready: that of the "
     "first is too early."),
    *(("no queue", Model(queue=False, ends=ends), QUEUE)
      for ends in ("with the latest", "with the last")),
    ("decimal", Model(rule=Rule(reverse=False, unit=10**6)),
     "1 MB is 2**20 bytes here, as in torch."),
    ("no rest", Model(rule=Rule(reverse=False, rest=False)),
     "The gradients that are left at the end make a bucket too."),
    ("past the cap", Model(rule=Rule(reverse=False, strict=True)),
     "A bucket closes when its bytes reach the cap: no more need fit in then."),
    ("below the cap", Model(rule=Rule(reverse=False, hard=True)),
     "A bucket closes when it has reached the cap: the gradient that reaches it is still in it."),
    *(("latencies", Model(alphas=alphas), LATENCIES)
      for alphas in (lambda n: 1, lambda n: n - 1, lambda n: n, lambda n: 3 * (n - 1))),
    ("no latency", Model(alphas=lambda n: 0),
     "That cap is best on a link without latency: each all-reduce costs 2(n - 1) latencies."),
    ("no bytes", Model(wires=lambda n: 0),
     "That cap is best where bytes take no time: add 2(n - 1)/n · B / bandwidth."),
    *(("bytes", Model(wires=wires), BYTES)
      for wires in (lambda n: 2 * (n - 1), lambda n: (n - 1) / n, lambda n: 1,
                    lambda n: 3 * (n - 1) / n)),
)
# fmt: on
RIGHT = Model()


def problems_that_tell(rng: random.Random) -> list[CapProblem]:
    """Problems on which each wrong model is known by what it chooses.

    Its caps are others than the right ones, than those of models with another sentence, and than
    always the smallest, largest, first or last.
    """
    choosers: list[tuple[str, Callable[[CapProblem], float]]] = [
        ("right", RIGHT.best),
        ("smallest", lambda problem: min(problem.caps)),
        ("largest", lambda problem: max(problem.caps)),
        ("first", lambda problem: problem.caps[0]),
        ("last", lambda problem: problem.caps[-1]),
        *((sentence, model.best) for _, model, sentence in WRONG_MODELS),
    ]
    alike = [(a, b) for a, b in combinations(choosers, 2) if a[0] != b[0]]
    found: list[CapProblem] = []
    while alike:
        problem = _of_ten(rng)
        chosen = {choose: choose(problem) for _, choose in choosers}
        still = [pair for pair in alike if chosen[pair[0][1]] == chosen[pair[1][1]]]
        if len(still) <= 0.4 * len(alike) + 1 and len(still) < len(alike) and problem.clear():
            found.append(problem)
            alike = still
    return found


def _of_ten(rng: random.Random) -> CapProblem:
    """Ten gradients, on a network whose latency costs about as much as its bytes."""
    gaps = [rng.randrange(10, 41) / 1000 for _ in range(9)]
    sizes = tuple(MB // 4 * rng.choice((1, 3, 3, 4, 6, 6, 8, 12)) for _ in range(10))
    caps = shuffled(rng, (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0))
    ranks, latency = rng.choice((3, 4)), rng.choice((2, 5, 10)) / 1000
    bandwidth = rng.choice((60e6, 120e6, 200e6))
    return CapProblem(caps, tuple(accumulate(gaps, initial=0.0)), sizes, latency, bandwidth, ranks)


def shuffled(rng: random.Random, caps: Sequence[float]) -> tuple[float, ...]:
    """The caps in any order: which is the first or the smallest says nothing."""
    return tuple(rng.sample(caps, len(caps)))


def a_byte_short(rng: random.Random, place: int) -> CapProblem:
    """A problem in which it makes a difference that gradient `place` lacks one byte.

    It is in the first bucket if it is the first; else in a later one.
    """
    early = Model(rule=Rule(reverse=False, short=1))

    def draw() -> CapProblem:
        sizes = [MB // 4 * rng.choice((1, 2)) for _ in range(20)]
        sizes[0] = 4 * MB if place else sizes[0]
        sizes[place] -= 1
        latency, speed = rng.uniform(1e-3, 8e-3), rng.uniform(60e6, 200e6)
        ready = tuple(0.01 * i for i in range(20))
        return CapProblem(shuffled(rng, CAPS[1:5]), ready, tuple(sizes), latency, speed, 3)

    return _drawn(draw, lambda problem: early.best(problem) != problem.best())


def a_large_one(rng: random.Random) -> CapProblem:
    """A large gradient, and small ones soon after it."""
    small = rng.randrange(9, 13)
    ready = (0.05, *(0.06 + 0.001 * i for i in range(small)))
    return _drawn(
        lambda: CapProblem(
            shuffled(rng, (1.0, 8.0, 9.0)),
            ready,
            (8 * MB, *(rng.randrange(MB // 8, MB // 6) for _ in range(small))),
            rng.randrange(3, 8) / 1000,
            rng.randrange(300, 600) * 1e6,
            2,
        )
    )


def alone(rng: random.Random) -> CapProblem:
    """What one rank is asked, for whom all caps are equally good."""
    ready, sizes = tuple(0.01 * i for i in range(8)), tuple(rng.choices((MB // 2, MB), k=8))
    return CapProblem(shuffled(rng, CAPS), ready, sizes, 1e-3, rng.uniform(60e6, 200e6), 1)


def many_small(
    rng: random.Random,
    ranks: int,
    latency_us: tuple[float, float],
    mb_per_s: tuple[float, float],
    caps: Sequence[float] = CAPS,
    at_once: bool = False,
) -> CapProblem:
    """32 gradients of about a quarter of a MB, on a network drawn between these limits."""

    def draw() -> CapProblem:
        sizes = [rng.randrange(MB // 8, 3 * MB // 8) for _ in range(32)]
        latency, speed = rng.uniform(*latency_us) * 1e-6, rng.uniform(*mb_per_s) * 1e6
        gap = 0.0 if at_once else rng.uniform(0.003, 0.005)
        ready = tuple(0.1 + gap * i for i in range(32))
        return CapProblem(shuffled(rng, caps), ready, tuple(sizes), latency, speed, ranks)

    return _drawn(draw)


def _drawn(
    draw: Callable[[], CapProblem], fits: Callable[[CapProblem], bool] = lambda problem: True
) -> CapProblem:
    while True:
        problem = draw()
        if problem.clear() and fits(problem):
            return problem
