"""The noise scale of gradients, and Adasum's sum of two gradients: right and wrong formulas."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ddpkit.checks.shared.mistakes import Mistake, Question

if TYPE_CHECKING:
    from torch import Tensor

Pair: TypeAlias = Callable[["Tensor", "Tensor"], "Tensor"]


def scale(
    squares: Sequence[float],
    mean_square: float,
    batch: int,
    *,
    signal: str = "right",
    divide: int = 1,
    of_batches: bool = False,
    roots: bool = False,
    turned: bool = False,
    below: bool = False,
) -> float:
    """Return the noise scale by McCandlish and others (2018, appendix A); options add mistakes.

    signal      "right"; "mean": the squared mean gradient, with its noise; "sum": the squared sum,
                n² times too large
    divide      the number that is subtracted from n in the divisor of the variance
    of_batches  return the scale in batches, not in samples
    roots       take the roots of the squared lengths
    turned      divide the signal by the noise
    below       return the ratio even if the signal is 0 or negative, not inf
    """
    n = len(squares)
    if roots:
        squares, mean_square = [math.sqrt(each) for each in squares], math.sqrt(mean_square)
    if signal == "sum":
        mean_square *= n * n
    variance = (sum(squares) / n - mean_square) * n / (n - divide)
    clean = mean_square if signal == "mean" else mean_square - variance / n
    if clean <= 0 and not below:
        return math.inf
    noise = variance / clean if not turned else clean / variance
    return noise if of_batches else batch * noise


# fmt: off
NOISE = (
    Mistake("average as signal", partial(scale, signal="mean"),
            "The average still has noise, an n-th of one rank's noise. Subtract this part."),
    Mistake("in batches", partial(scale, of_batches=True),
            "Return the noise scale in samples: times `batch`."),
    Mistake("upside down", partial(scale, turned=True),
            "Your ratio is inverted. Divide noise by signal."),
    Mistake("lengths", partial(scale, roots=True),
            "Both numbers are squared lengths already. Take no root."),
    Mistake("below nothing", partial(scale, below=True),
            "A signal of 0 or less means that noise covers the signal. Return math.inf."),
    Mistake("of the sum", partial(scale, signal="sum"),
            "`mean_square` is the square of the average. Use it directly, without n² and without a "
            "sum."),
    Mistake("n for n - 1", partial(scale, divide=0),
            "The average depends on the ranks' gradients. Divide by n - 1, not by n."),
)
# fmt: on
OTHER_NOISE = (
    "With noise v in one rank's gradient, the mean of `squares` is signal + v, and `mean_square` "
    "is signal + v/n. Solve these two equations. The answer is batch · v / signal."
)


def drawn_noise(rng: random.Random) -> Question:
    """Draw the squared lengths of the gradients of 2 to 8 ranks, with a positive signal."""
    n, batch, noise = rng.choice((2, 4, 8)), rng.choice((32, 64)), rng.uniform(1, 3)
    signal = rng.uniform(0.4, 0.9)
    squares = [(signal + noise) * rng.uniform(0.8, 1.25) for _ in range(n)]
    return squares, signal + sum(squares) / n / n, batch


def covered(rng: random.Random) -> Question:
    """Draw four gradients without a signal: the mean gradient is shorter than noise would be."""
    squares = [rng.uniform(1, 2) for _ in range(4)]
    return squares, sum(squares) / 16 * rng.uniform(0.5, 0.99), rng.choice((16, 32, 64))


def just_covered(rng: random.Random) -> Question:
    """Draw two gradients with a signal of exactly 0; the numbers are exact in floating point."""
    square = 2.0 ** rng.randrange(-3, 4)
    return [square, square], square / 2, rng.choice((16, 32, 64))


def small(rng: random.Random) -> Question:
    """Draw gradients as `drawn_noise` does, with squared lengths below 1e-5."""
    squares, mean_square, batch = drawn_noise(rng)
    return [each / 2**20 for each in squares], mean_square / 2**20, batch


# adasum


def adasum(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of a and b, each minus half of the projection of the other tensor onto it.

    The rule is by Maleki and others (2021).
    """
    return _shortened(a, b, lambda dot, aa, bb: (dot / (2 * aa), dot / (2 * bb)))


def _shortened(
    a: Tensor, b: Tensor, factors: Callable[[float, float, float], tuple[float, float]]
) -> Tensor:
    dot, aa, bb = (float((x.double() * y.double()).sum()) for x, y in ((a, b), (a, a), (b, b)))
    if not aa or not bb:
        return a + b
    less, too = factors(dot, aa, bb)
    return (1 - less) * a + (1 - too) * b


def _factors(change: Callable[[float, float, float], tuple[float, float]]) -> Pair:
    return partial(_shortened, factors=change)


def _of_b_alone(a: Tensor, b: Tensor) -> Tensor:
    return _shortened(a, b, lambda dot, aa, bb: (0.0, dot / bb))


def _of_a_alone(a: Tensor, b: Tensor) -> Tensor:
    return _shortened(a, b, lambda dot, aa, bb: (dot / aa, 0.0))


def _cosine(dot: float, aa: float, bb: float) -> tuple[float, float]:
    half = dot / math.sqrt(aa * bb) / 2
    return half, half


NEGATIVE = "If a·b is negative, keep its sign: both gradients become longer."
# fmt: off
SUMS: tuple[tuple[str, Pair, str], ...] = (
    ("sum", lambda a, b: a + b,
     "The result is the sum, so equal gradients come out twice as long. Subtract half of the "
     "common part from each gradient."),
    ("mean", lambda a, b: (a + b) / 2,
     "The result is the mean, but gradients at right angles should be added."),
    ("without the half", _factors(lambda dot, aa, bb: (dot / aa, dot / bb)),
     "Equal gradients vanish. Subtract only half of the common part from each gradient."),
    ("lengths", _factors(lambda dot, aa, bb: (dot / math.sqrt(aa) / 2, dot / math.sqrt(bb) / 2)),
     "Divide by the squared length, |a|² = a·a."),
    ("swapped", _factors(lambda dot, aa, bb: (dot / bb / 2, dot / aa / 2)),
     "Shorten a by the squared length of a, and b by the squared length of b."),
    ("one alone", _of_b_alone,
     "Shorten both gradients, each by half. Otherwise the ranks of a pair would get different "
     "sums."),
    ("one alone", _of_a_alone,
     "Shorten both gradients, each by half. Otherwise the ranks of a pair would get different "
     "sums."),
    ("negative", _factors(lambda dot, aa, bb: (abs(dot) / aa / 2, abs(dot) / bb / 2)), NEGATIVE),
    ("negative", _factors(lambda dot, aa, bb: (max(dot, 0) / aa / 2, max(dot, 0) / bb / 2)),
     NEGATIVE),
    ("cosine", _factors(_cosine),
     "Your formula is right only for two gradients of equal length. Shorten a by a·b / 2|a|²."),
)
# fmt: on


def pairs(rng: random.Random) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Draw pairs of gradients at all kinds of angles, by title.

    The first pair of "two gradients" has a positive dot product, and the second a negative one. The
    lengths are about 1 to 70. In "equal, twice as long", both gradients are shorter than 0.3.
    """
    import torch

    long = torch.tensor([rng.choice((-1, 1)) * rng.uniform(1, 5) for _ in range(40)])
    other = torch.tensor([rng.uniform(-3, 3) for _ in range(40)])
    left, right = torch.zeros(6), torch.zeros(6)
    left[:3], right[3:] = long[:3], other[:3] + 4
    along = float(long @ other / (long @ long))
    across = other - along * long
    nothing, short, brief = torch.zeros(40), long / 128, other / 128
    return {
        "two gradients": [(long, 0.4 * long + across), (long, across - 0.7 * long)],
        "at right angles, opposite": [(left, right), (long, -0.5 * long)],
        "equal, twice as long": [(short, short.clone()), (brief, 2 * brief)],
        "one is zeros, or both": [(nothing, other), (long, nothing), (nothing, nothing)],
    }
