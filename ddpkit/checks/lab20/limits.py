"""Lab 20: the fewest tokens that hide a communication, by right and wrong formulas."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Way = Literal["shards", "copies", "slices"]
# seconds of messages; seconds of messages for each token; seconds of arithmetic for each token
Stretch = tuple[float, float, float]
MOST = 10_000_000  # the largest number of tokens that the check runs


@dataclass(frozen=True)
class Hidden:
    """A question to `hidden_from`: its arguments, and the sizes of the products in the run."""

    way: Way
    sizes: tuple[int, int]  # (in, out) of a linear layer; for shards and slices, of an MLP
    n: int
    tera: int  # TFLOP/s of a rank
    giga: int  # GB/s of a link
    us: int  # latency of a link, in us

    @property
    def block(self) -> int:
        """The parameters of one layer (a linear layer or an MLP), on all ranks together."""
        d, h = self.sizes
        return d * h if self.way == "copies" else 2 * d * h

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of `hidden_from`."""
        rates = self.tera * 1e12, self.giga * 1e9, self.us * 1e-6
        return (self.way, self.block, self.sizes[0], self.n, *rates)

    @property
    def words(self) -> str:
        """The question in a few words, for the title of a case."""
        return f"{self.way}, {self.n} ranks, {self.giga} GB/s, {self.us} us"


def asked(answer: Answer, arguments: tuple[object, ...]) -> dict[str, object]:
    """Return the number of tokens that the answer computes."""
    return {"tokens": answer(*arguments)}


def drawn(rng: random.Random) -> list[Hidden]:
    """Return seven questions: five that the check runs, one never hidden, one without latency."""

    def us(least: int) -> int:
        return rng.randrange(least, least + 6)

    def near(number: int) -> int:
        return number + 8 * rng.randrange(-80, 81)

    return [
        Hidden("shards", (1024, near(4096)), 8, 400, 50, us(4)),
        Hidden("shards", (4096, near(14336)), 64, 400, 25, us(8)),
        Hidden("copies", (near(2048),) * 2, 8, 400, 50, us(4)),
        Hidden("copies", (near(4096),) * 2, 64, 400, 25, us(8)),
        Hidden("slices", (8192, near(28672)), 8, 400, 450, us(2)),
        Hidden("slices", (4096, near(16384)), 8, 400, 25, us(3)),
        Hidden("slices", (4096, near(16384)), 4, 100, 200, 0),
    ]


def stretches(ask: Hidden, **by_mistake: Any) -> list[Stretch]:
    """Return the times of the messages and products that overlap; keywords add mistakes.

    latency   seconds of a hop
    gradient  bytes of each element of a gradient
    ring      trips round the ring in an all-reduce
    backward  FLOPs of a backward, for each parameter and token
    divided   False: each hop sends all bytes, not an n-th
    apart     False: backward's two messages are sent at the same time
    more      0: the bytes of slices do not grow with the tokens
    both      False: only the forward counts
    """
    way, block, width, n, flops, bandwidth, latency = ask.arguments
    latency = by_mistake.get("latency", latency)
    gradient, back = by_mistake.get("gradient", 4), by_mistake.get("backward", 4)
    ring = by_mistake.get("ring", 2)

    def trip(nbytes: float) -> float:
        part = nbytes / n if by_mistake.get("divided", True) else nbytes
        return float((n - 1) * (latency + part / bandwidth))

    if way == "copies":
        return [(ring * trip(gradient * block), 0.0, back * block / flops)]
    if way == "slices":
        each = ring * (n - 1) * width / n / bandwidth
        each = each if by_mistake.get("divided", True) else n * each
        return [(ring * trip(0), by_mistake.get("more", 1) * each, block / n / flops)]
    both = [trip(2 * block), trip(gradient * block)]
    moved = sum(both) if by_mistake.get("apart", True) else max(both)
    found = [(trip(2 * block), 0.0, 2 * block / flops), (moved, 0.0, back * block / flops)]
    return found if by_mistake.get("both", True) else found[:1]


def limit(ask: Hidden, **by_mistake: object) -> float:
    """Return the fewest tokens that hide the messages; math.inf if no number does."""
    found = exact(ask, **by_mistake)
    return found if found == math.inf else float(math.ceil(found))


def exact(ask: Hidden, **by_mistake: object) -> float:
    """Return the limit before it is rounded up."""
    return max(
        once / (work - more) if work > more else math.inf
        for once, more, work in stretches(ask, **by_mistake)
    )


def is_least(got: float, ask: Hidden) -> bool:
    """True for the exact limit, rounded up; one token more is right too.

    Two halves of equal size may need one token more. If the exact limit is nearly a whole number,
    another order of the operations may round it to the next or to the previous number.
    """
    due, unrounded = limit(ask), exact(ask)
    if due == math.inf or not math.isfinite(got):
        return bool(got == due)
    near = abs(unrounded - round(unrounded)) <= 1e-6 * unrounded
    return got == int(got) and due - near <= got <= due + 1


def close(got: object, due: float) -> bool:
    """True if the number is within 0.2 % or one token of `due`; inf is close only to inf."""
    if isinstance(got, bool) or not isinstance(got, int | float):
        return False
    if math.isinf(due) or math.isinf(got) or math.isnan(got):
        return bool(got == due)
    return bool(abs(got - due) <= max(1.0, 0.002 * due))


IDEAS: dict[str, Sequence[dict[str, object]]] = {
    "backward too": [{"both": False}, {"apart": False}],
    "two bytes": [{"gradient": 2}],
    "half a ring": [{"ring": 1}],
    "no latency": [{"latency": 0.0}],
    "fixed bytes": [{"more": 0}],
}


def by_ideas(ask: Hidden) -> dict[str, list[float]]:
    """Return, for each mistake, the numbers of tokens that its variants give."""
    return {name: [limit(ask, **each) for each in many] for name, many in IDEAS.items()}
