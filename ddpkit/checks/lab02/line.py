"""A line of time over message size, fitted by least squares, and hints for wrong lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isclose
from statistics import fmean, linear_regression

from ddpkit.exercises.hint import Hint, Seen

Link = tuple[float, float]  # latency in seconds, bandwidth in bytes per second


def line(nbytes: Sequence[float], seconds: Sequence[float]) -> Link:
    """Return the latency and bandwidth of the line `seconds = latency + nbytes / bandwidth`."""
    slope, intercept = linear_regression(nbytes, seconds)
    return intercept, 1 / slope


def of_sizes(s: Seen) -> Link:
    """Return the line with the axes swapped: the fit of nbytes = bandwidth * (t - latency)."""
    slope, intercept = linear_regression(s.one_way, s.nbytes)
    return -intercept / slope, slope


def through_ends(s: Seen) -> Link:
    """Return the line through the shortest and the longest message."""
    ends = sorted(zip(s.nbytes, s.one_way, strict=True))[:: len(s.nbytes) - 1]
    return line(*zip(*ends, strict=True))


def through_means(s: Seen) -> Link:
    """Return the line through the mean times, one mean for each message size."""
    times = list(zip(s.nbytes, s.one_way, strict=True))
    means = {size: fmean(t for nbytes, t in times if nbytes == size) for size in s.nbytes}
    return line(list(means), list(means.values()))


def by_one_less(power: int, s: Seen) -> Link:
    """Return a line with a covariance divided by n - 1, and a variance divided by n.

    With `power` -1, the covariance is divided by n and the variance by n - 1.
    """
    n = len(s.nbytes)
    slope = (n / (n - 1)) ** power / s.beta
    return fmean(s.one_way) - slope * fmean(s.nbytes), 1 / slope


def near(link: Callable[[Seen], Link], s: Seen) -> bool:
    """True if the answer's latency and bandwidth are those of `link(s)`."""
    latency, bandwidth = link(s)
    return isclose(s["latency"], latency, rel_tol=1e-3) and is_bandwidth(s, bandwidth)


def is_bandwidth(s: Seen, bandwidth: float) -> bool:
    return isclose(s["bandwidth"], bandwidth, rel_tol=1e-3)


UNEVEN = (
    "One of the two sums is divided by n, the second by n - 1. Divide both sums by the same number."
)
# `s.alpha` and `s.beta` are the right latency and bandwidth.
# fmt: off
MISTAKES: tuple[tuple[str, Callable[[Seen], Link], str], ...] = (
    ("swapped", lambda s: (s.beta, s.alpha), "Return first the latency, then the bandwidth."),
    ("round trip", lambda s: (2 * s.alpha, s.beta / 2),
     "A round trip is two messages, so one message takes half the time."),
    ("bytes twice", lambda s: (s.alpha, s.beta / 2),
     "A round trip carries the bytes twice, there and back."),
    ("latency twice", lambda s: (2 * s.alpha, s.beta),
     "A round trip pays the latency twice, there and back."),
    ("slope", lambda s: (s.alpha, 1 / s.beta),
     "The slope is in seconds per byte, but a bandwidth is in bytes per second."),
    ("bits", lambda s: (s.alpha, 8 * s.beta),
     "Your bandwidth is in bits per second. Return bytes per second."),
    ("two points", through_ends, "Your line goes through only two points, but every measurement "
    "counts."),
    ("means", through_means, "Every measurement counts, so do not average before the fit."),
    ("n - 1", partial(by_one_less, 1), UNEVEN),
    ("n - 1", partial(by_one_less, -1), UNEVEN),
    ("sizes over times", of_sizes, "The errors are in the times: fit t over S, not S over t."),
    ("milliseconds", lambda s: (1e3 * s.alpha, s.beta),
     "Your latency is in milliseconds. Return seconds."),
    ("microseconds", lambda s: (1e6 * s.alpha, s.beta),
     "Your latency is in microseconds. Return seconds."),
    ("megabytes", lambda s: (s.alpha, s.beta / 1e6),
     "Your bandwidth is in MB per second. Return bytes per second."),
    ("halved twice", lambda s: (s.alpha, s.beta / 4),
     "The bytes are halved twice: 1 / b of one way is already the bandwidth."),
    ("shortest", lambda s: (min(s.one_way), s.beta),
     "The shortest message has bytes too. α is the time at S = 0."),
)
LINE = (
    Hint("no pair", lambda s: "returned" in s.observed,
         lambda s: f"You return a {s.returned}. Return two numbers, first the latency."),
    *(Hint(name, partial(near, link), says) for name, link, says in MISTAKES),
    Hint("through zero", lambda s: s["latency"] == 0,
         "The line need not go through zero: the latency is the time of 0 bytes."),
    Hint("float32",
         lambda s: is_bandwidth(s, s.beta) and abs(s.latency - s.alpha) < 1e-5 * max(s.one_way),
         "Only the first digits of both numbers are right. A latency is a small difference of "
         "large numbers, and float32 has too few digits for the difference. Compute in float64."),
    Hint("latency", lambda s: not s.wrong("bandwidth"),
         "The bandwidth is right, but the latency is not. The latency is the mean of t minus b "
         "times the mean of S, with one-way times."),
    Hint("line", say="The line is t = a + b S, by the sums in the lab: a is the latency, and 1 / b "
         "the bandwidth."),
)
# fmt: on
