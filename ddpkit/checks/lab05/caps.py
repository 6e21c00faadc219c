"""The best bucket cap, by the right model of the network and by common wrong models."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from ddpkit.checks.lab05.rules import MB, Rule

CAPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class CapProblem:
    """A question to `best_cap`: the function's arguments."""

    caps: tuple[float, ...]
    ready: tuple[float, ...]  # seconds at which each gradient is ready
    sizes: tuple[int, ...]  # bytes of each gradient
    latency: float  # seconds
    bandwidth: float  # bytes per second
    world_size: int

    def done(self, cap: float) -> float:
        """Return the end of the last all-reduce, in s, by the kit's simulator."""
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
        """True if the best cap wins by 1 %, so neither rounding nor the order of caps matters."""
        first, second = sorted(map(self.done, self.caps))[:2]
        return second > 1.01 * first


IN_ORDER = Rule(reverse=False)  # gradients enter buckets in the order in which they become ready


@dataclass(frozen=True)
class Model:
    """A model of the time of a step; the default values give the right model."""

    ready: str = "the last"  # the gradient for which an all-reduce waits; also "the first", "none"
    queue: bool = True  # an all-reduce also waits for the previous all-reduce
    # the step ends with the all-reduce that ends latest; "with the last": with the last bucket's
    ends: str = "with the latest"
    rule: Rule = IN_ORDER
    alphas: Callable[[int], float] = lambda n: 2 * (n - 1)  # number of latencies, for n ranks
    # number of times that the bytes of a bucket cross a link, for n ranks
    wires: Callable[[int], float] = lambda n: 2 * (n - 1) / n

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
    "All-reduces run one after the next: an all-reduce starts when the previous all-reduce is "
    "done, even if its own gradients were ready earlier."
)
LATENCIES = "An all-reduce takes 2(n - 1) messages in a row, and therefore 2(n - 1) latencies."
BYTES = (
    "A bucket with B bytes sends 2(n - 1)/n · B bytes over each link: 2(n - 1)/n · B / bandwidth."
)

# fmt: off
WRONG_MODELS: tuple[tuple[str, Model, str], ...] = (
    ("not ready", Model(ready="none"),
     "An all-reduce cannot start before the last gradient of its bucket is ready, nor before the "
     "previous all-reduce ends. Take the later of the two times."),
    ("first is ready", Model(ready="the first"),
     "An all-reduce cannot start before the last gradient of its bucket is ready. The time of the "
     "first gradient is too early."),
    *(("no queue", Model(queue=False, ends=ends), QUEUE)
      for ends in ("with the latest", "with the last")),
    ("decimal", Model(rule=Rule(reverse=False, unit=10**6)),
     "1 MB is 2**20 bytes here, as in torch."),
    ("no rest", Model(rule=Rule(reverse=False, rest=False)),
     "The gradients that are left at the end form a bucket too."),
    ("past the cap", Model(rule=Rule(reverse=False, strict=True)),
     "A bucket closes when its bytes reach the cap. The bytes need not exceed the cap."),
    ("below the cap", Model(rule=Rule(reverse=False, hard=True)),
     "A bucket closes when its bytes reach the cap. The gradient that reaches the cap still "
     "belongs to the bucket."),
    *(("latencies", Model(alphas=alphas), LATENCIES)
      for alphas in (lambda n: 1, lambda n: n - 1, lambda n: n, lambda n: 3 * (n - 1))),
    ("no latency", Model(alphas=lambda n: 0),
     "Your cap is best on a link without latency. Each all-reduce costs 2(n - 1) latencies."),
    ("no bytes", Model(wires=lambda n: 0),
     "Your cap is best if bytes take no time. Add 2(n - 1)/n · B / bandwidth."),
    *(("bytes", Model(wires=wires), BYTES)
      for wires in (lambda n: 2 * (n - 1), lambda n: (n - 1) / n, lambda n: 1,
                    lambda n: 3 * (n - 1) / n)),
)
# fmt: on
RIGHT = Model()


def problems_that_tell(rng: random.Random) -> list[CapProblem]:
    """Draw problems until their best caps tell all wrong models apart.

    For some problem, the caps of a wrong model differ from the right caps, and from the caps of
    each model that has a different hint. The caps also differ from the choices "always the
    smallest, largest, first or last cap".
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
    """Draw a problem of ten gradients; latency and bytes cost about the same time."""
    gaps = [rng.randrange(10, 41) / 1000 for _ in range(9)]
    sizes = tuple(MB // 4 * rng.choice((1, 3, 3, 4, 6, 6, 8, 12)) for _ in range(10))
    caps = shuffled(rng, (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0))
    ranks, latency = rng.choice((3, 4)), rng.choice((2, 5, 10)) / 1000
    bandwidth = rng.choice((60e6, 120e6, 200e6))
    return CapProblem(caps, tuple(accumulate(gaps, initial=0.0)), sizes, latency, bandwidth, ranks)


def shuffled(rng: random.Random, caps: Sequence[float]) -> tuple[float, ...]:
    """Return the caps in random order, so that the position of a cap has no meaning."""
    return tuple(rng.sample(caps, len(caps)))


def a_byte_short(rng: random.Random, place: int) -> CapProblem:
    """Draw a problem in which gradient `place` is one byte too small to fill a bucket.

    A rule that ignores the missing byte chooses a wrong cap. With `place` 0, the first bucket lacks
    the byte. With a different `place`, gradient 0 alone fills the first bucket, and a later bucket
    lacks the byte.
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
    """Draw a problem with one large gradient, followed soon by small gradients."""
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
    """Draw a problem for one rank, for which all caps are equally good."""
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
    """Draw 32 gradients of about a quarter of a MB, on a network within the given limits."""

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
