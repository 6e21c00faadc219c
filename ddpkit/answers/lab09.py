# mypy: ignore-errors
"""Answers of lab 09 (scaling).

Generated from solutions/09_scaling.py by `make release`; do not edit.
"""

import math

import torch


def step_time(compute, cap, price) -> float:
    """Seconds of one data-parallel step whose all-reduces overlap with backward.

    `compute` has `forward` (s), `ready` and `sizes` (when gradient i is ready, in s after backward
    began, and its bytes, in order of readiness) and `after` (s: optimizer). A bucket closes when
    its bytes reach `cap` MB (2**20 bytes). `price(nbytes)` is the time of one all-reduce; ask for
    it once for each bucket. All-reduces go one after the other, and none begins before its last
    gradient is ready.
    """
    free, filled = 0.0, 0
    for i, (at, size) in enumerate(zip(compute.ready, compute.sizes)):
        filled += size
        if filled >= cap * 2**20 or i == len(compute.sizes) - 1:
            free = max(free, compute.forward + at) + price(filled)
            filled = 0
    return free + compute.after


def fit(features, seconds) -> list[float]:
    """The coefficients c for which sum(c[k] * features[i][k]) comes closest to seconds[i].

    Closest: the sum of squared *relative* errors is least, so that 1 ms wrong of 10 ms counts as
    much as 1 s of 10 s. There is no constant but the one that a feature of 1 makes. Returns a list
    of Python's float.
    """
    t = torch.tensor(seconds, dtype=torch.float64)
    rows = torch.tensor(features, dtype=torch.float64) / t[:, None]
    return torch.linalg.lstsq(rows, torch.ones_like(t)[:, None])[0].flatten().tolist()


def autotune(measure, predicted) -> float:
    """The cap with the shortest measured step, with as few measurements as can be sure of it.

    `predicted[cap]` is the model's seconds, a lower bound of `measure(cap)`. `measure(cap)` runs
    real steps, which takes long: ask it for the most promising first, never twice, and stop when no
    cap left can beat the best so far.
    """
    took = {}
    for cap in sorted(predicted, key=predicted.get):
        if took and predicted[cap] >= min(took.values()):
            break
        took[cap] = measure(cap)
    return min(took, key=took.get)


def servers(sizes, workers, seconds, bandwidth) -> int | None:
    """How many parameter servers hide the communication behind `seconds` of compute: the fewest.

    Every worker sends each gradient to the server that keeps it and gets the parameter back, over
    that server's link of `bandwidth` bytes/s: in and out one after the other. A tensor is kept
    whole by one server: give the largest out first, each to the server with the fewest bytes so
    far. None if even one server per tensor is not enough.
    """
    for count in range(1, len(sizes) + 1):
        load = [0] * count
        for size in sorted(sizes, reverse=True):
            load[load.index(min(load))] += size
        if 2 * workers * max(load) / bandwidth <= seconds:
            return count
    return None


def noise_scale(squares, mean_square, batch) -> float:
    """The gradient noise scale, in samples, from what data parallelism already has.

    `squares[r]` is the squared length of rank r's gradient over its own `batch` samples, and
    `mean_square` that of the average over the ranks. Where noise covers the signal: math.inf.

    With noise v in a rank's gradient: the mean of `squares` is |G|² + v, and `mean_square` is
    |G|² + v/n. The answer is batch · v / |G|².
    """
    n = len(squares)
    noise = (sum(squares) / n - mean_square) * n / (n - 1)
    signal = mean_square - noise / n
    return batch * noise / signal if signal > 0 else math.inf


def expected_hours(hours, ranks, rate, save, interval, restart) -> float:
    """How long a synchronous job of `hours` takes on servers that are revoked now and then.

    All in hours. Each server is revoked `rate` times an hour, at any moment alike, or never: 0. A
    checkpoint takes `save` and comes after each `interval` of work, also at the end; there are
    hours / interval such stretches, not rounded: a part of one counts as a part. A stretch of work
    and its checkpoint counts only if no server is revoked in it; else all go back, wait `restart`,
    and do it again.
    """
    danger, stretch = ranks * rate, interval + save
    if danger == 0:
        return hours / interval * stretch
    return hours / interval * (1 / danger + restart) * math.expm1(danger * stretch)


def plan(step_seconds, noise, least_steps, worlds, batches, dollars, deadline):
    """The cheapest (ranks, batch per rank) that is done within `deadline` hours; None if none is.

    `step_seconds(ranks, batch)` is the model of a step. With n·b samples a step it takes
    least_steps · (1 + noise / (n·b)) steps. A rank costs `dollars` an hour. A plan of exactly
    `deadline` hours is in time. Of equally cheap plans the faster one.
    """
    found = []
    for n in worlds:
        for b in batches:
            steps = least_steps * (1 + noise / (n * b))
            hours = steps * step_seconds(n, b) / 3600
            if hours <= deadline:
                found.append((n * dollars * hours, hours, (n, b)))
    return min(found)[2] if found else None


def adasum(a, b):
    """Two gradients combined: added where they are at right angles, averaged where they agree.

    (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b; a gradient of zeros leaves the other as it is.
    """
    if not a.any() or not b.any():
        return a + b
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
