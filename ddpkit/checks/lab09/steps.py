"""Seconds of a step with all-reduces that overlap with backward, and wrong models of overlap."""

from __future__ import annotations

import random
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from ddpkit.checks.shared.mistakes import Mistake, Question

MB = 2**20


class Compute(NamedTuple):
    """The times and gradient sizes of a rank's step, like the namedtuple in the notebook."""

    forward: float  # s
    ready: list[float]  # s from the start of backward until each gradient is ready
    sizes: list[int]  # bytes of each gradient
    after: float  # s of work after backward and all-reduces


def priced(alpha: float, per_byte: float, nbytes: int) -> float:
    """Return the seconds of one all-reduce of `nbytes` bytes."""
    return alpha + per_byte * nbytes


def by_the_simulator(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    """Return the seconds of the step, by the kit's simulator."""
    from ddpkit.simulate import Gradient, Step, assign_buckets, replay

    gradients = tuple(
        Gradient(str(i), size, round(at * 1e9))
        for i, (at, size) in enumerate(zip(compute.ready, compute.sizes, strict=True))
    )
    step = Step(round(compute.forward * 1e9), gradients, round(compute.after * 1e9))
    buckets = assign_buckets(gradients, cap, cap)
    done = replay(
        step, 2, "unlimited", buckets, price=lambda b: round(priced(alpha, per_byte, b) * 1e9)
    )
    return done.step_ns / 1e9


def buckets(compute: Compute, cap: float) -> int:
    """Return the number of buckets that a step has with this cap."""
    return len(_buckets(compute, cap))


def _buckets(
    compute: Compute, cap: float, unit: int = MB, *, rest: bool = True, strict: bool = False
) -> list[tuple[float, float, int]]:
    """Return, for each bucket, the times of its first and last gradient, and its bytes."""
    found, first, filled = [], 0.0, 0
    for i, (at, size) in enumerate(zip(compute.ready, compute.sizes, strict=True)):
        first = at if not filled else first
        filled += size
        full = filled > cap * unit if strict else filled >= cap * unit
        if full or (rest and i == len(compute.sizes) - 1):
            found.append((first, at, filled))
            filled = 0
    return found


def _queued(
    compute: Compute,
    cap: float,
    alpha: float,
    per_byte: float,
    *,
    unit: int = MB,
    rest: bool = True,
    strict: bool = False,
    wait_for: int = 1,
    begin: float | None = None,
) -> float:
    """Return the seconds until the last all-reduce is done; options make the model wrong."""
    begin = compute.forward if begin is None else begin
    free = 0.0
    for bucket in _buckets(compute, cap, unit, rest=rest, strict=strict):
        free = max(free, begin + float(bucket[wait_for])) + priced(alpha, per_byte, bucket[2])
    return free


def _ended(compute: Compute, cap: float, alpha: float, per_byte: float, **wrong: Any) -> float:
    done = _queued(compute, cap, alpha, per_byte, **wrong)
    return done + compute.after


def _all_prices(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    return sum(priced(alpha, per_byte, nbytes) for _, _, nbytes in _buckets(compute, cap))


def _sum(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    return (
        compute.forward
        + compute.ready[-1]
        + _all_prices(compute, cap, alpha, per_byte)
        + compute.after
    )


def _max(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    moved = _all_prices(compute, cap, alpha, per_byte)
    return compute.forward + max(compute.ready[-1], moved) + compute.after


def _unqueued(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    ends = (at + priced(alpha, per_byte, nbytes) for _, at, nbytes in _buckets(compute, cap))
    return compute.forward + max(ends) + compute.after


def _beside(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    backward = compute.forward + compute.ready[-1] + compute.after
    return max(_queued(compute, cap, alpha, per_byte), backward)


def _one_price(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    (_, at, _), *_ = _buckets(compute, cap)
    return compute.forward + at + priced(alpha, per_byte, sum(compute.sizes)) + compute.after


def _milliseconds(compute: Compute, cap: float, alpha: float, per_byte: float) -> float:
    return 1000 * _ended(compute, cap, alpha, per_byte)


# fmt: off
MISTAKES = (
    Mistake("a sum", _sum,
            "Your model has no overlap. The first bucket moves while backward makes the next "
            "gradients."),
    Mistake("a maximum", _max,
            "The first bucket cannot start when backward begins, because its gradients are not "
            "ready yet."),
    Mistake("no queue", _unqueued,
            "All-reduces run one after the next: an all-reduce starts when the previous all-reduce "
            "is done."),
    Mistake("no after", _queued,
            "The optimizer runs when backward and all-reduces are over. Add `after` at the end."),
    Mistake("no after", _beside,
            "The optimizer runs when backward and all-reduces are over. Add `after` at the end."),
    Mistake("no forward", partial(_ended, begin=0.0),
            "`ready` counts from the start of backward. Add `forward`."),
    Mistake("decimal", partial(_ended, unit=10**6),
            "1 MB is 2**20 bytes here, as in torch."),
    Mistake("no rest", partial(_ended, rest=False),
            "The gradients that are left at the end form a bucket too."),
    Mistake("one price", _one_price,
            "Each bucket has its own price. Call `price` once for each bucket."),
    Mistake("first is ready", partial(_ended, wait_for=0),
            "An all-reduce takes the whole bucket. Wait for the bucket's last gradient."),
    Mistake("past the cap", partial(_ended, strict=True),
            "A bucket closes when its bytes reach the cap. The bytes need not exceed the cap."),
    Mistake("milliseconds", _milliseconds,
            "Your result is a thousand times too large. Return seconds."),
)
# fmt: on
OTHER = (
    "Visit the gradients in order. When a bucket closes, its all-reduce begins at the later of two "
    "times: its last gradient is ready, and the previous all-reduce is done."
)


def drawn(rng: random.Random) -> Question:
    """Draw a step of ten gradients; all-reduces and backward take about the same time."""
    gaps = [rng.randrange(2, 9) / 1000 for _ in range(10)]
    sizes = [MB // 8 * rng.choice((1, 2, 3, 4, 4, 6, 8)) - rng.choice((0, 0, 40_000)) for _ in gaps]
    backward = sum(gaps)
    compute = Compute(
        rng.randrange(10, 30) / 1000, list(accumulate(gaps)), sizes, rng.randrange(2, 9) / 1000
    )
    per_byte = rng.choice((0.6, 1.0, 1.6)) * backward / sum(sizes)
    return compute, rng.choice((0.5, 1.0, 1.5)), rng.randrange(1, 9) / 10_000, per_byte


def special(rng: random.Random) -> list[tuple[str, Question]]:
    """Draw steps for edge cases, each with its title."""
    compute, cap, alpha, per_byte = drawn(rng)
    large = [MB // 4, 5 * MB, *[MB // 4] * 8]
    exact = [MB // 2] * 10
    short = [MB // 2, MB // 2 - 1, MB // 2, MB // 2, MB // 2 - 1, *[MB // 2] * 5]
    odd = compute._replace(ready=[0.004, 0.007, 0.011], sizes=[700_000, 300_000, 3 * MB])
    one = compute._replace(ready=compute.ready[:1], sizes=compute.sizes[:1])
    return [
        ("one gradient", (one, cap, alpha, per_byte)),
        ("one bucket for all", (compute, 1000.0, alpha, per_byte)),
        ("a bucket for each", (compute, 1e-6, alpha, per_byte)),
        ("the network costs nothing", (compute, cap, 0.0, 0.0)),
        ("a gradient larger than the cap", (compute._replace(sizes=large), 1.0, alpha, per_byte)),
        (
            "a cap that is reached to the byte",
            (compute._replace(sizes=exact), 1.0, alpha, per_byte),
        ),
        ("a byte below the cap", (compute._replace(sizes=short), 1.0, alpha, per_byte)),
        ("a cap of 0.97 MB", (odd, 0.97, alpha, per_byte)),
    ]
