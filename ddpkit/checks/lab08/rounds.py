"""Lab 08: the right formula, and wrong formulas, for the seconds of a synchronous round."""

from __future__ import annotations

from collections.abc import Callable

Numbers = tuple[int, int, int, float, float, float]  # the arguments of seconds_per_round
Formula = Callable[[int, int, float, float, float], float]  # arguments: W, k, C, α and t


def by(formula: Formula, numbers: Numbers) -> float:
    """Return the seconds of a round, computed by `formula`."""
    workers, servers, nbytes, compute, latency, bandwidth = numbers
    return formula(workers, servers, compute, latency, nbytes / bandwidth)


def right(w: int, k: int, c: float, a: float, t: float) -> float:
    """Return the right number of seconds of a round.

    The parameters of the last worker arrive (W - 1) t/k after those of the first worker.
    """
    return c + 3 * a + (w - 1) * t / k + 2 * t


OTHERS: dict[str, Formula] = {
    "all wait": lambda w, k, c, a, t: c + 3 * a + 2 * w * t / k,
    "own link": lambda w, k, c, a, t: c + 3 * a + (w - 1) * t / k + 2 * t / k,
    "average worker": lambda w, k, c, a, t: c + 3 * a + (w - 1) * t / k / 2 + 2 * t,
    "first worker": lambda w, k, c, a, t: c + 3 * a + 2 * t,
    "one server": lambda w, k, c, a, t: c + 3 * a + (w - 1) * t + 2 * t,
    "latency of each worker": lambda w, k, c, a, t: c + 3 * w * a + (w - 1) * t / k + 2 * t,
    "latency of each server": lambda w, k, c, a, t: c + 3 * k * a + (w - 1) * t / k + 2 * t,
    "two latencies": lambda w, k, c, a, t: c + 2 * a + (w - 1) * t / k + 2 * t,
    "half duplex": lambda w, k, c, a, t: c + 3 * a + 2 * (w - 1) * t / k + 2 * t,
    "compute shared": lambda w, k, c, a, t: c / w + 3 * a + (w - 1) * t / k + 2 * t,
}
