"""Which bucket and which cap, by the right rule and by wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MB = 2**20


@dataclass(frozen=True)
class Rule:
    """How an `assign_buckets` may work; the defaults are right but for what `simulate` proves."""

    reverse: bool = True
    unit: int = MB
    elements: bool = False  # counts elements, not bytes
    hard: bool = False  # closes before the cap would be passed
    strict: bool = False  # closes when the cap is passed, not when it is reached
    dtypes: bool = True  # keeps them apart
    devices: bool = True
    first: str = "of each kind"  # "of all", "never", "always"
    rest: bool = True  # what is open at the end closes too

    def buckets(self, parameters: Sequence[Any], cap_mb: float, first_mb: float) -> list[list[int]]:
        """The places in `parameters` of each bucket's members."""
        kinds = [
            (p.dtype if self.dtypes else 0, str(p.device) if self.devices else 0)
            for p in parameters
        ]
        sizes = [p.numel() * (1 if self.elements else p.element_size()) for p in parameters]
        return self.filled(kinds, sizes, cap_mb, first_mb)

    def filled(
        self, kinds: Sequence[Any], sizes: Sequence[int], cap_mb: float, first_mb: float
    ) -> list[list[int]]:
        closed: list[list[int]] = []
        filling: dict[Any, list[int]] = {}
        begun: set[Any] = set()
        for i in sorted(range(len(sizes)), reverse=self.reverse):
            kind = kinds[i]
            counter = kind if self.first == "of each kind" else 0
            early = self.first == "always" or (self.first != "never" and counter not in begun)
            cap = (first_mb if early else cap_mb) * self.unit
            held = filling.setdefault(kind, [])
            size = sum(sizes[j] for j in [*held, i])
            if self.hard and held and size > cap:
                closed.append(filling.pop(kind))
                begun.add(counter)
            filling.setdefault(kind, []).append(i)
            if not self.hard and (size > cap if self.strict else size >= cap):
                closed.append(filling.pop(kind))
                begun.add(counter)
        return closed + (list(filling.values()) if self.rest else [])


# fmt: off
WRONG_RULES: tuple[tuple[str, Rule, str], ...] = (
    ("forward", Rule(reverse=False),
     "Backward begins with the last layer: walk over the parameters in reverse order."),
    ("below the cap", Rule(hard=True),
     "A bucket closes when it has reached the cap. The parameter that reaches it still goes in, "
     "even if the bucket is then larger than the cap."),
    ("past the cap", Rule(strict=True),
     "A bucket closes when its bytes reach the cap: no more need fit in then."),
    ("no rest", Rule(rest=False), "What is open at the end is missing: close it too."),
    ("elements", Rule(elements=True), "The cap counts bytes: numel() times element_size()."),
    ("decimal", Rule(unit=10**6), "1 MB is 2**20 bytes here, as in torch."),
    ("one first of all", Rule(first="of all"),
     "Each kind, a dtype on a device, has a first bucket."),
    ("two dtypes", Rule(dtypes=False),
     "Two dtypes are in one bucket, which is to be one tensor: keep an open bucket for each dtype "
     "and device."),
    ("two devices", Rule(devices=False),
     "Two devices are in one bucket, which is to be one tensor: keep an open bucket for each dtype "
     "and device."),
    ("no first", Rule(first="never"),
     "The first bucket has a cap of its own: first_bucket_mb, if given; 0 is one too."),
    ("always first", Rule(first="always"),
     "first_bucket_mb is for the first bucket of a kind only."),
)
# fmt: on


def by_torchs_rule(parameters: Sequence[Any], cap: float, first: float) -> list[list[int]]:
    """Buckets by the kit's simulator, which is tested against torch: the places of parameters."""
    from ddpkit.simulate import Gradient, assign_buckets

    gradients = [
        Gradient(str(i), p.numel() * p.element_size(), 0, f"{p.dtype} {p.device}")
        for i, p in enumerate(parameters)
    ]
    buckets = assign_buckets(gradients[::-1], cap, first)
    return [[int(name) for name in bucket.gradients] for bucket in buckets]


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


@dataclass(frozen=True)
class Model:
    """A wrong idea of how long it takes."""

    ready: str = "the last"  # of a bucket's gradients that is waited for: "the first", "none"
    queue: bool = True  # ... and for the all-reduce before
    rule: Rule = Rule(reverse=False)
    alphas: Callable[[int], float] = lambda n: 2 * (n - 1)  # latencies, of n ranks
    wires: Callable[[int], float] = lambda n: 2 * (n - 1) / n  # how often the bytes go over a link

    def best(self, problem: CapProblem) -> float:
        return min(problem.caps, key=lambda cap: self.done(problem, cap))

    def done(self, problem: CapProblem, cap: float) -> float:
        n, free, last = problem.world_size, 0.0, 0.0
        for members in self.rule.filled([0] * len(problem.sizes), problem.sizes, cap, cap):
            ready = {"the last": problem.ready[members[-1]], "the first": problem.ready[members[0]]}
            start = max(ready.get(self.ready, 0.0), free if self.queue else 0.0)
            nbytes = sum(problem.sizes[i] for i in members)
            free = start + self.alphas(n) * problem.latency
            free += self.wires(n) * nbytes / problem.bandwidth
            last = max(last, free)
        return last


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
    ("no queue", Model(queue=False),
     "All-reduces go one after the other: one starts when the one before it is done, even if its "
     "own gradients were ready earlier."),
    ("decimal", Model(rule=Rule(reverse=False, unit=10**6)),
     "1 MB is 2**20 bytes here, as in torch."),
    ("no rest", Model(rule=Rule(reverse=False, rest=False)),
     "The gradients that are left at the end make a bucket too."),
    ("past the cap", Model(rule=Rule(reverse=False, strict=True)),
     "A bucket closes when its bytes reach the cap: no more need fit in then."),
    ("below the cap", Model(rule=Rule(reverse=False, hard=True)),
     "A bucket closes when it has reached the cap: the gradient that reaches it is still in it."),
    ("latencies", Model(alphas=lambda n: 1), LATENCIES),
    ("latencies", Model(alphas=lambda n: n - 1), LATENCIES),
    ("no latency", Model(alphas=lambda n: 0),
     "Without the latency the smallest cap always wins: add 2(n - 1) of it."),
    ("no bytes", Model(wires=lambda n: 0),
     "Without the bytes the largest cap always wins: add 2(n - 1)/n · B / bandwidth."),
    ("bytes", Model(wires=lambda n: 2 * (n - 1)), BYTES),
    ("bytes", Model(wires=lambda n: (n - 1) / n), BYTES),
)
# fmt: on

# Each wrong model chooses otherwise on these three networks: its sentence fits.
TELLING = [
    CapProblem(
        (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0),
        (0.0, 0.04, 0.07, 0.1, 0.11, 0.14, 0.15, 0.17, 0.2, 0.23),
        tuple(MB // 4 * n for n in (3, 4, 1, 6, 12, 6, 8, 6, 3, 4)),
        *network,
    )
    for network in ((10e-3, 200e6, 4), (2e-3, 200e6, 4), (10e-3, 60e6, 3))
]
