"""The noise of gradients, and their sum by Adasum: right and wrong."""

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
    """The noise scale by McCandlish and others (2018, appendix A), but for what is given.

    ``signal``: "right", "mean" (the average's own square) or "sum" (of the sum, n² times too much).
    ``divide``: what is taken from n in the variance. ``below``: a negative one is given back.
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
            "The average still has noise in it, an n-th of it: take that off."),
    Mistake("in batches", partial(scale, of_batches=True),
            "In samples, please: times `batch`."),
    Mistake("upside down", partial(scale, turned=True),
            "Upside down: it is noise over signal."),
    Mistake("lengths", partial(scale, roots=True),
            "Both are squared lengths already: take no root."),
    Mistake("below nothing", partial(scale, below=True),
            "A signal of 0 or less means that noise covers it: return math.inf."),
    Mistake("of the sum", partial(scale, signal="sum"),
            "`mean_square` is of the average, as it is: no n² and no sum."),
    Mistake("n for n - 1", partial(scale, divide=0),
            "The average moves with the ranks' gradients: divide by n - 1, not by n."),
)
# fmt: on
OTHER_NOISE = (
    "With noise v in one rank's gradient, the mean of `squares` is signal + v, and `mean_square` "
    "is signal + v/n: two equations for two unknowns. The answer is batch · v / signal."
)


def drawn_noise(rng: random.Random) -> Question:
    """Some ranks whose gradients have a signal; and one question in which noise covers it."""
    n, batch, noise = rng.choice((2, 4, 8)), rng.choice((32, 64)), rng.uniform(1, 3)
    signal = rng.uniform(0.4, 0.9)
    squares = [(signal + noise) * rng.uniform(0.8, 1.25) for _ in range(n)]
    return squares, signal + sum(squares) / n / n, batch


def covered(rng: random.Random) -> Question:
    """Ranks that agree on nothing: their average is as short as noise alone makes it."""
    squares = [rng.uniform(1, 2) for _ in range(4)]
    return squares, sum(squares) / 16 * rng.uniform(0.5, 0.99), rng.choice((16, 32, 64))


def just_covered(rng: random.Random) -> Question:
    """Two ranks with a signal of exactly 0, in numbers that no rounding touches."""
    square = 2.0 ** rng.randrange(-3, 4)
    return [square, square], square / 2, rng.choice((16, 32, 64))


# adasum


def adasum(a: Tensor, b: Tensor) -> Tensor:
    """Maleki and others (2021): the sum, less half of what both say, of each."""
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


# fmt: off
SUMS: tuple[tuple[str, Pair, str], ...] = (
    ("sum", lambda a, b: a + b,
     "That is the sum: gradients that agree come out twice as long. Shorten each by half of what "
     "both say."),
    ("mean", lambda a, b: (a + b) / 2,
     "That is the mean: gradients at right angles should be added."),
    ("without the half", _factors(lambda dot, aa, bb: (dot / aa, dot / bb)),
     "Equal gradients vanish: only half of what both say is taken from each."),
    ("lengths", _factors(lambda dot, aa, bb: (dot / math.sqrt(aa) / 2, dot / math.sqrt(bb) / 2)),
     "Divide by the squared length, |a|² = a·a."),
    ("swapped", _factors(lambda dot, aa, bb: (dot / bb / 2, dot / aa / 2)),
     "a is shortened by its own squared length, b by its own."),
    ("one alone", _of_b_alone,
     "Both are shortened, each by half: else the ranks of a pair would get different sums."),
    ("one alone", _of_a_alone,
     "Both are shortened, each by half: else the ranks of a pair would get different sums."),
    ("cosine", _factors(_cosine),
     "That is right for two of one length only: a is shortened by a·b / 2|a|²."),
)
# fmt: on


def pairs(rng: random.Random) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """Gradients in all positions to each other; lengths are some 1 to 30, and two are short."""
    import torch

    long = torch.tensor([rng.choice((-1, 1)) * rng.uniform(1, 5) for _ in range(40)])
    other = torch.tensor([rng.uniform(-3, 3) for _ in range(40)])
    left, right = torch.zeros(6), torch.zeros(6)
    left[:3], right[3:] = long[:3], other[:3] + 4
    nothing, short, brief = torch.zeros(40), long / 128, other / 128
    return {
        "two gradients": [(long, 0.4 * long + other)],
        "at right angles, opposite": [(left, right), (long, -0.5 * long)],
        "equal, twice as long": [(short, short.clone()), (brief, 2 * brief)],
        "one is zeros": [(nothing, other), (long, nothing)],
    }
