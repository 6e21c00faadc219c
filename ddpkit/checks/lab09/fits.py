"""Coefficients by least squares of relative errors, and wrong fits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ddpkit.checks.shared.mistakes import Mistake, Question

Rows: TypeAlias = Sequence[Sequence[float]]


def fitted(
    features: Rows, seconds: Sequence[float], weigh: Callable[[Any], Any] = lambda t: 1 / t
) -> list[float]:
    """Return the coefficients of a weighted least-squares fit of `seconds` to `features`.

    `weigh` computes the weight of each row from its seconds.
    """
    import numpy as np

    times = np.array(seconds)
    weights, rows = weigh(times), np.array(features, dtype=float)
    sizes = np.abs(rows).max(axis=0)  # columns of similar size, so that rounding loses no digits
    found, *_ = np.linalg.lstsq(rows / sizes * weights[:, None], times * weights, rcond=None)
    return [float(each) for each in found / sizes]


def _with_a_constant(features: Rows, seconds: Sequence[float]) -> list[float]:
    return fitted([[*row, 1.0] for row in features], seconds)


def _dropped(features: Rows, seconds: Sequence[float]) -> list[float]:
    return _with_a_constant(features, seconds)[:-1]


def _ends(features: Rows, seconds: Sequence[float]) -> list[float]:
    return fitted([features[0], features[-1]], [seconds[0], seconds[-1]])


def _alone(features: Rows, seconds: Sequence[float]) -> list[float]:
    columns = zip(*features, strict=True)
    return [fitted([[each] for each in column], seconds)[0] for column in columns]


def _turned(features: Rows, seconds: Sequence[float]) -> list[float]:
    return [1 / each for each in fitted(features, seconds)]


def _last_turned(features: Rows, seconds: Sequence[float]) -> list[float]:
    *others, last = fitted(features, seconds)
    return [*others, 1 / last]


TURNED = (
    "c[k] is in seconds for one unit of feature k, such as a byte. Take the reciprocal outside of "
    "fit."
)
ROOT = (
    "Your weights are only the root of the right weights. Divide each row by its seconds, not by "
    "their root."
)
# fmt: off
MISTAKES = (
    Mistake("absolute", partial(fitted, weigh=lambda t: t**0),
            "A long time counts more than a short time here. Divide each row and its seconds by "
            "its seconds."),
    Mistake("dropped", _dropped,
            "A constant that you fit and then drop takes part of the time with it. Fit without a "
            "constant."),
    Mistake("first and last", _ends, "You use two rows. Use every row."),
    Mistake("each alone", _alone,
            "The features act together. Solve for all coefficients at once."),
    Mistake("turned over", _turned, TURNED),
    Mistake("turned over", _last_turned, TURNED),
    Mistake("upside down", partial(fitted, weigh=lambda t: t),
            "Your weights are inverted: a long time counts even more. Divide by the seconds."),
    Mistake("half way", partial(fitted, weigh=lambda t: t**-0.5), ROOT),
)
# fmt: on
OTHER = (
    "Divide each row of features by its seconds. Then the answer is the least-squares solution "
    "with a right-hand side of ones."
)


def drawn(rng: random.Random) -> Question:
    """Draw times of all-reduces of 1 kB to 1 GB on 2 to 8 ranks, with errors of up to a quarter."""
    alpha, per_byte = rng.uniform(50e-6, 500e-6), rng.uniform(1e-9, 9e-9)
    sizes = [(rng.choice((2, 3, 4, 8)), 10**k) for k in range(3, 10)]
    rows = [(2.0 * (ranks - 1), 2 * (ranks - 1) / ranks * size) for ranks, size in sizes]
    return rows, [_off(rng) * (a * alpha + b * per_byte) for a, b in rows]


def exact(rng: random.Random) -> Question:
    """Draw times of all-reduces of 1 B to 1 GB; two coefficients give the exact times."""
    alpha, per_byte = rng.uniform(50e-6, 500e-6), rng.uniform(1e-9, 9e-9)
    rows = [(6.0, 1.5 * 10**k) for k in range(10)]
    return rows, [a * alpha + b * per_byte for a, b in rows]


def batches(rng: random.Random) -> Question:
    """Draw times of steps with several batch sizes: a constant, and a time for each sample."""
    fixed, sample = rng.uniform(5e-3, 20e-3), rng.uniform(1e-4, 9e-4)
    rows = [(1.0, float(batch)) for batch in (1, 2, 4, 8, 16, 64, 256)]
    return rows, [_off(rng) * (fixed + batch * sample) for _, batch in rows]


def one_feature(rng: random.Random) -> Question:
    """Draw times in proportion to a single feature."""
    slope = rng.uniform(1e-3, 9e-3)
    rows = [(float(n),) for n in (1, 3, 10, 30, 100)]
    return rows, [_off(rng) * slope * n for (n,) in rows]


def servers(rng: random.Random) -> Question:
    """Draw busy times of a server: a time for each tensor, and a time for each byte."""
    tensor, byte = rng.uniform(5e-5, 5e-4), rng.uniform(1e-9, 5e-9)
    rows = [(50.0, 2.8e6), (104.0, 7.4e6), (216.0, 11.7e6), (216.0, 104.8e6)]
    return rows, [_off(rng) * (a * tensor + b * byte) for a, b in rows]


def three(rng: random.Random) -> Question:
    """Draw times of steps with three terms: a constant, a time per sample, and a time per byte."""
    fixed, sample, byte = rng.uniform(5e-3, 9e-3), rng.uniform(1e-4, 3e-4), rng.uniform(1e-9, 3e-9)
    rows = [(1.0, batch, nbytes) for batch in (8.0, 32.0, 128.0) for nbytes in (1e5, 1e6, 1e7)]
    return rows, [_off(rng) * (fixed + a * sample + b * byte) for _, a, b in rows]


def falling(rng: random.Random) -> Question:
    """Draw times that fall with the second feature: its coefficient is negative."""
    most, less = rng.uniform(0.1, 0.3), rng.uniform(0.5e-3, 1e-3)
    rows = [(1.0, float(count)) for count in (1, 2, 5, 10, 20, 40, 80)]
    return rows, [rng.uniform(0.98, 1.02) * (most - less * count) for _, count in rows]


def _off(rng: random.Random) -> float:
    return rng.uniform(0.8, 1.25)
