"""Lab 05: which bucket and which cap, by the right rule and by wrong ones that people write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ddpkit.exercises.exercise import Observed

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
        closed: list[list[int]] = []
        filling: dict[Any, list[int]] = {}
        begun: set[Any] = set()
        places = range(len(parameters))
        for i in reversed(places) if self.reverse else places:
            p = parameters[i]
            kind = (p.dtype if self.dtypes else 0, str(p.device) if self.devices else 0)
            counter = kind if self.first == "of each kind" else 0
            early = self.first == "always" or (self.first != "never" and counter not in begun)
            cap = (first_mb if early else cap_mb) * self.unit
            held = filling.setdefault(kind, [])
            size = self._size([parameters[j] for j in held])
            if self.hard and held and size + self._size([p]) > cap:
                closed.append(filling.pop(kind))
                begun.add(counter)
                filling[kind] = [i]
                continue
            held.append(i)
            size += self._size([p])
            if not self.hard and (size > cap if self.strict else size >= cap):
                closed.append(filling.pop(kind))
                begun.add(counter)
        return closed + (list(filling.values()) if self.rest else [])

    def _size(self, parameters: Sequence[Any]) -> int:
        return sum(p.numel() * (1 if self.elements else p.element_size()) for p in parameters)


WRONG_RULES: tuple[tuple[Rule, str], ...] = (
    (Rule(reverse=False), "Backward begins with the last layer: walk over the parameters in "
     "reverse order."),
    (Rule(hard=True), "A bucket closes when it has reached the cap. The parameter that reaches it "
     "still goes in, even if the bucket is then larger than the cap."),
    (Rule(strict=True), "A bucket closes when its bytes reach the cap: no more need fit in then."),
    (Rule(rest=False), "What is open at the end is missing: close it too."),
    (Rule(elements=True), "The cap counts bytes: numel() times element_size()."),
    (Rule(unit=10**6), "1 MB is 2**20 bytes here, as in torch."),
    (Rule(first="of all"), "Each kind, a dtype on a device, has a first bucket."),
    (Rule(dtypes=False), "Two dtypes are in one bucket, which is to be one tensor: keep an open "
     "bucket for each dtype and device."),
    (Rule(devices=False), "Two devices are in one bucket, which is to be one tensor: keep an open "
     "bucket for each dtype and device."),
    (Rule(first="never"), "The first bucket has a cap of its own: first_bucket_mb, if given; 0 is "
     "one too."),
    (Rule(first="always"), "first_bucket_mb is for the first bucket of a kind only."),
)  # fmt: skip


@dataclass(frozen=True)
class Question:
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
        step = Step(0, gradients)
        done = replay(step, self.world_size, link, assign_buckets(gradients, cap, cap)).all_reduces
        return done[-1].done_ns / 1e9

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
    rest: bool = True
    unit: int = MB
    hard: bool = False  # closes before the cap would be passed
    strict: bool = False  # closes when the cap is passed, not when it is reached
    alphas: str = "2(n-1)"
    wires: str = "2(n-1)/n"

    def best(self, q: Question) -> float:
        return min(q.caps, key=lambda cap: self.done(q, cap))

    def done(self, q: Question, cap: float) -> float:
        n, free, last = q.world_size, 0.0, 0.0
        alphas = {"2(n-1)": 2 * (n - 1), "n-1": n - 1, "1": 1, "0": 0}[self.alphas]
        whole = 2 * (n - 1)
        wires = {"2(n-1)/n": whole / n, "2(n-1)": whole, "(n-1)/n": whole / 2 / n, "0": 0}
        for members in self._buckets(q, cap * self.unit):
            ready = {"the last": q.ready[members[-1]], "the first": q.ready[members[0]]}
            start = max(ready.get(self.ready, 0.0), free if self.queue else 0.0)
            nbytes = sum(q.sizes[i] for i in members)
            free = start + alphas * q.latency + wires[self.wires] * nbytes / q.bandwidth
            last = max(last, free)
        return last

    def _buckets(self, q: Question, cap: float) -> Iterator[list[int]]:
        """The places of each bucket's gradients."""
        members: list[int] = []
        for i, after in enumerate([*q.sizes[1:], 0]):
            members.append(i)
            filled = sum(q.sizes[j] for j in members)
            full = filled > cap if self.strict else filled >= cap
            if filled + after > cap if self.hard else full:
                yield members
                members = []
        if members and self.rest:
            yield members


LATENCIES = "An all-reduce takes 2(n - 1) messages in a row, and so many latencies."
BYTES = "Of a bucket's B bytes 2(n - 1)/n go over each link: 2(n - 1)/n · B / bandwidth."
WRONG_MODELS: tuple[tuple[Model, str], ...] = (
    (Model(ready="none"), "An all-reduce cannot start before the last gradient of its bucket is "
     "ready, whatever came first: take the later of that and the end of the one before."),
    (Model(ready="the first"), "An all-reduce cannot start before the last gradient of its bucket "
     "is ready: that of the first is too early."),
    (Model(queue=False), "All-reduces go one after the other: one starts when the one before it is "
     "done, even if its own gradients were ready earlier."),
    (Model(unit=10**6), "1 MB is 2**20 bytes here, as in torch."),
    (Model(rest=False), "The gradients that are left at the end make a bucket too."),
    (Model(strict=True), "A bucket closes when its bytes reach the cap: no more need fit in then."),
    (Model(hard=True), "A bucket closes when it has reached the cap: the gradient that reaches it "
     "is still in it."),
    (Model(alphas="1"), LATENCIES),
    (Model(alphas="n-1"), LATENCIES),
    (Model(alphas="0"), "Without the latency the smallest cap always wins: add 2(n - 1) of it."),
    (Model(wires="0"), "Without the bytes the largest cap always wins: add 2(n - 1)/n · B / "
     "bandwidth."),
    (Model(wires="2(n-1)"), BYTES),
    (Model(wires="(n-1)/n"), BYTES),
)  # fmt: skip

# Each wrong model chooses otherwise on these three networks: its sentence fits.
TELLING = [
    Question(
        (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0),
        (0.0, 0.04, 0.07, 0.1, 0.11, 0.14, 0.15, 0.17, 0.2, 0.23),
        tuple(MB // 4 * n for n in (3, 4, 1, 6, 12, 6, 8, 6, 3, 4)),
        *network,
    )
    for network in ((10e-3, 200e6, 4), (2e-3, 200e6, 4), (10e-3, 60e6, 3))
]


def model_hint(seen: Observed) -> str | None:
    """To wrong answers to `TELLING`."""
    if "error" in seen:
        return None
    for model, sentence in WRONG_MODELS:
        if seen["caps"] == [model.best(question) for question in TELLING]:
            return sentence
    pairs = zip(TELLING, seen["caps"], strict=True)
    return next(cap_hint(asked, {"cap": cap}) for asked, cap in pairs if cap != asked.best())


def cap_hint(question: Question, seen: Observed) -> str | None:
    """To a wrong answer to one question. It names no cap that is right: inputs may be secret."""
    if "error" in seen:
        return None
    if seen["cap"] not in question.caps:
        return "The answer is one of `caps`, in MB."
    if question.world_size == 1:
        return "Of caps that are equally good, as all are for one rank, it is the first."
    chosen = seen["cap"]
    late, early = (round(question.done(cap) * 1000) for cap in (chosen, question.best()))
    return f"With {chosen:g} MB the last is done after {late} ms, with the best cap after {early}."
