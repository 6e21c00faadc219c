# mypy: ignore-errors
"""Answers of lab 09 (scaling).

Generated from solutions/09_scaling.py by `make release`; do not edit.
"""

import math

import torch


def step_time(compute, cap, price) -> float:
    """Return the seconds of one data-parallel step; its all-reduces overlap with backward.

    `compute.forward` and `compute.after` (the optimizer) are in seconds. Gradient i is ready
    `compute.ready[i]` seconds after the start of backward, and has `compute.sizes[i]` bytes, in
    order of readiness. A bucket closes when its bytes reach `cap` MB (2**20 bytes).
    `price(nbytes)` is the time of one all-reduce; call it once for each bucket. All-reduces go one
    after the other, and none begins before its last gradient is ready.
    """
    free, filled = 0.0, 0
    for i, (at, size) in enumerate(zip(compute.ready, compute.sizes)):
        filled += size
        if filled >= cap * 2**20 or i == len(compute.sizes) - 1:
            free = max(free, compute.forward + at) + price(filled)
            filled = 0
    return free + compute.after


def fit(features, seconds) -> list[float]:
    """Return the coefficients c for which sum(c[k] * features[i][k]) comes closest to seconds[i].

    Minimise the sum of squared *relative* errors: an error of 1 ms in 10 ms counts as much as an
    error of 1 s in 10 s. Add no constant term: a feature that is always 1 makes one. Returns a list
    of Python floats.
    """
    t = torch.tensor(seconds, dtype=torch.float64)
    rows = torch.tensor(features, dtype=torch.float64) / t[:, None]
    return torch.linalg.lstsq(rows, torch.ones_like(t)[:, None])[0].flatten().tolist()


def autotune(measure, predicted) -> float:
    """Return the cap with the shortest measured step, after as few measurements as possible.

    `predicted[cap]` is the model's seconds, a lower bound of `measure(cap)`. `measure(cap)` takes
    long, because it runs real steps. So measure the most promising cap first and no cap twice, and
    stop when no remaining cap can beat the best measured step.
    """
    took = {}
    for cap in sorted(predicted, key=predicted.get):
        if took and predicted[cap] >= min(took.values()):
            break
        took[cap] = measure(cap)
    return min(took, key=took.get)


def servers(sizes, workers, seconds, bandwidth) -> int | None:
    """Return the smallest number of servers that hides communication behind `seconds` of compute.

    Every worker sends each gradient to the server of its tensor, and gets the parameter back, over
    this server's link of `bandwidth` bytes/s: in and out one after the other. Each tensor is whole
    on one server: give out the largest tensor first, each to the server with the fewest bytes so
    far. Return None if even one server per tensor is not enough.
    """
    for count in range(1, len(sizes) + 1):
        load = [0] * count
        for size in sorted(sizes, reverse=True):
            load[load.index(min(load))] += size
        if 2 * workers * max(load) / bandwidth <= seconds:
            return count
    return None


def noise_scale(squares, mean_square, batch) -> float:
    """Return the gradient noise scale, in samples.

    `squares[r]` is the squared length of rank r's gradient over its own `batch` samples.
    `mean_square` is the squared length of the average of all ranks' gradients. Return math.inf if
    the noise covers the signal: if the found |G|² is not above 0.

    With noise v in a rank's gradient: the mean of `squares` is |G|² + v, and `mean_square` is
    |G|² + v/n. The answer is batch · v / |G|².
    """
    n = len(squares)
    noise = (sum(squares) / n - mean_square) * n / (n - 1)
    signal = mean_square - noise / n
    return batch * noise / signal if signal > 0 else math.inf


def expected_hours(hours, ranks, rate, save, interval, restart) -> float:
    """Return the average time of a synchronous job of `hours` on servers that may be revoked.

    All times are in hours. Each server is revoked `rate` times an hour on average, at random
    moments (0: never). A checkpoint takes `save`, and comes after each `interval` of work, also at
    the end; there are hours / interval such stretches, not rounded: a part of a stretch counts as a
    part. A stretch of work and its checkpoint counts only if no server is revoked meanwhile;
    otherwise all ranks go back, wait for `restart`, and repeat the stretch.
    """
    danger, stretch = ranks * rate, interval + save
    if danger == 0:
        return hours / interval * stretch
    return hours / interval * (1 / danger + restart) * math.expm1(danger * stretch)


def plan(step_seconds, noise, least_steps, worlds, batches, dollars, deadline):
    """Return the cheapest (ranks, batch per rank) that is done in `deadline` hours, or None.

    `worlds` and `batches` list the ranks and batches to try. `step_seconds(ranks, batch)` is the
    model of a step. A training with n ranks and b samples per rank takes
    least_steps · (1 + noise / (n·b)) steps. A rank costs `dollars` an hour. A plan of exactly
    `deadline` hours is in time. Of equally cheap plans, return the fastest.
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
    """Combine two gradients: add them if they are at right angles, average them if they agree.

    The result is (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b. If one gradient is all zeros, the
    result is the other gradient.
    """
    if not a.any() or not b.any():
        return a + b
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
