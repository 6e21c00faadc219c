"""Right answers to lab 09, different from the solution."""

import heapq
import math
from functools import cache
from itertools import product

import numpy as np
import torch

from tests.labs.answers import right


def bucketed(compute, cap):
    """Return (time at which the last gradient is ready, bytes) of each bucket."""
    buckets, filled = [], 0
    for at, size in zip(compute.ready, compute.sizes, strict=True):
        filled += size
        if filled >= cap * 2**20:
            buckets.append((at, filled))
            filled = 0
    return [*buckets, (compute.ready[-1], filled)] if filled else buckets


@right("step_time")
def by_sums(compute, cap, price):
    sums, done, begin = np.cumsum(compute.sizes), 0.0, 0
    while begin < len(sums):
        before = sums[begin - 1] if begin else 0
        end = min(int(np.searchsorted(sums, before + cap * 2**20)), len(sums) - 1)
        done = max(done, compute.ready[end]) + price(int(sums[end] - before))
        begin = end + 1
    return compute.forward + max(done, compute.ready[-1]) + compute.after


@right("step_time")
def with_a_maximum_that_nothing_needs(compute, cap, price):
    free = 0.0
    for at, size in bucketed(compute, cap):
        start = max(free, compute.forward + at)
        free = start + price(size)
    return max(free, compute.forward + compute.ready[-1]) + compute.after


@right("step_time")
def by_a_list_of_ends(compute, cap, price):
    ends = [0.0]
    for at, size in bucketed(compute, cap):
        ends.append(max(ends[-1], compute.forward + at) + price(size))
    return ends[-1] + compute.after


@right("step_time")
def by_the_closed_form_of_a_queue(compute, cap, price):
    buckets = bucketed(compute, cap)
    costs = [price(size) for _, size in buckets]
    late = max(at + sum(costs[i:]) for i, (at, _) in enumerate(buckets))
    return compute.forward + late + compute.after


@right("step_time")
def by_numpy(compute, cap, price):
    forward, ready, sizes, after = compute
    ends, place = np.cumsum(sizes), 0
    free = 0.0
    while place < len(sizes):
        begun = ends[place - 1] if place else 0
        last = min(int(np.searchsorted(ends, begun + cap * 2**20)), len(sizes) - 1)
        last = max(last, place)
        free = max(free, forward + ready[last]) + price(int(ends[last] - begun))
        place = last + 1
    return free + after


@right("fit")
def by_numpys_least_squares(features, seconds):
    rows, t = np.array(features), np.array(seconds)
    return list(np.linalg.lstsq(rows / t[:, None], np.ones(len(t)), rcond=None)[0])


@right("fit")
def by_scaled_normal_equations(features, seconds):
    rows = np.array(features, dtype=float) / np.array(seconds)[:, None]
    sizes = np.abs(rows).max(axis=0)
    rows = rows / sizes
    return (np.linalg.solve(rows.T @ rows, rows.T @ np.ones(len(rows))) / sizes).tolist()


@right("fit")
def by_qr(features, seconds):
    rows = torch.tensor(features, dtype=torch.float64) / torch.tensor(seconds).double()[:, None]
    q, r = torch.linalg.qr(rows)
    solved = torch.linalg.solve_triangular(r, q.T.sum(1, keepdim=True), upper=True)
    return solved.flatten().tolist()


@right("autotune")
def by_a_heap(measure, predicted):
    heap = [(seconds, cap) for cap, seconds in predicted.items()]
    heapq.heapify(heap)
    best, least = None, math.inf
    while heap and heap[0][0] < least:
        _, cap = heapq.heappop(heap)
        took = measure(cap)
        if took < least:
            best, least = cap, took
    return best


@right("autotune")
def by_a_sorted_list(measure, predicted):
    left = sorted(predicted.items(), key=lambda item: item[1])
    took = {left[0][0]: measure(left[0][0])}
    for cap, seconds in left[1:]:
        if not any(each <= seconds for each in took.values()):
            took[cap] = measure(cap)
    return min(took.items(), key=lambda item: item[1])[0]


@right("servers")
def by_a_heap_of_servers(sizes, workers, seconds, bandwidth):
    def fits(count):
        load = [0] * count
        for size in sorted(sizes)[::-1]:
            heapq.heappush(load, heapq.heappop(load) + size)
        return max(load) * workers * 2 / bandwidth <= seconds

    return next((count for count in range(1, len(sizes) + 1) if fits(count)), None)


@right("servers")
def from_the_lower_bound(sizes, workers, seconds, bandwidth):
    least = math.ceil(2 * sum(sizes) * workers / (bandwidth * seconds) * (1 - 1e-12))
    for count in range(max(least, 1), len(sizes) + 1):
        load = [0] * count
        for size in sorted(sizes, reverse=True):
            load[min(range(count), key=load.__getitem__)] += size
        if 2 * workers * max(load) <= seconds * bandwidth:
            return count
    return None


@right("noise_scale")
def by_two_equations(squares, mean_square, batch):
    n, small = len(squares), sum(squares) / len(squares)
    signal = (n * mean_square - small) / (n - 1)
    trace = (small - mean_square) / (1 / batch - 1 / (n * batch))
    return trace / signal if signal > 0 else float("inf")


@right("noise_scale")
def by_a_solver(squares, mean_square, batch):
    n = len(squares)
    signal, noise = np.linalg.solve([[1, 1], [1, 1 / n]], [sum(squares) / n, mean_square])
    return batch * noise / signal if signal > 0 else math.inf


@right("noise_scale")
def by_deviations(squares, mean_square, batch):
    n = len(squares)
    variance = (sum(squares) - n * mean_square) / (n - 1)
    signal = mean_square - variance / n
    if signal <= 0:
        return math.inf
    return variance * batch / signal


@right("adasum")
def by_parts(a, b):
    dot, aa, bb = torch.dot(a, b), torch.dot(a, a), torch.dot(b, b)
    if aa == 0 or bb == 0:
        return b.clone() if aa == 0 else a.clone()
    return a + b - dot / aa / 2 * a - dot / bb / 2 * b


@right("adasum")
def by_numpy_in_float64(a, b):
    a, b = a.double().numpy(), b.double().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        less = [np.nan_to_num(np.dot(a, b) / (2 * np.dot(x, x))) for x in (a, b)]
    return torch.from_numpy((1 - less[0]) * a + (1 - less[1]) * b).float()


@right("expected_hours")
def by_attempts(hours, ranks, rate, save, interval, restart):
    danger, stretch = ranks * rate, interval + save
    if not danger:
        return hours * (1 + save / interval)
    survived = math.exp(-danger * stretch)
    failures = 1 / survived - 1
    failed = 1 / danger - stretch * survived / (1 - survived)  # the length of a stretch that fails
    return hours / interval * (stretch + failures * (failed + restart))


@right("expected_hours")
def by_a_recursion_solved(hours, ranks, rate, save, interval, restart):
    danger = ranks * rate
    if danger == 0:
        return (interval + save) * hours / interval
    grown = math.exp(danger * (interval + save))
    return hours / interval * ((grown - 1) / danger + (grown - 1) * restart)


@right("plan")
def by_min_with_a_key(step_seconds, noise, least_steps, worlds, batches, dollars, deadline):
    @cache
    def hours(found):
        n, b = found
        return least_steps * (1 + noise / (n * b)) * step_seconds(n, b) / 3600

    found = [each for each in product(worlds, batches) if hours(each) <= deadline]
    return min(found, key=lambda each: (each[0] * dollars * hours(each), hours(each)), default=None)


@right("plan")
def by_a_grid(step_seconds, noise, least_steps, worlds, batches, dollars, deadline):
    n, b = np.meshgrid(worlds, batches, indexing="ij")
    seconds = np.array([[step_seconds(x, y) for y in batches] for x in worlds])
    hours = least_steps * (1 + noise / (n * b)) * seconds / 3600
    cost = np.where(hours <= deadline, n * dollars * hours, np.inf)
    if not np.isfinite(cost).any():
        return None
    at = np.lexsort((hours.ravel(), cost.ravel()))[0]
    return int(n.ravel()[at]), int(b.ravel()[at])
