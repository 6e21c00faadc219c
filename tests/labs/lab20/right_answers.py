"""Right answers to lab 20 that differ from the kit's."""

import heapq
import math
from collections import Counter, deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ddpkit.trace.intervals import intersect, subtract, total, union
from tests.labs.answers import right

AGAIN = "none", "selective", "full"


@dataclass(frozen=True)
class Plan:
    replicas: int
    stages: int
    slices: int
    again: str
    micro: int


# model_flops


@right("model_flops")
def of_one_token(shape, sequences, length, again="none"):
    products = [2 * n * m for n, m in shape.products]
    attention = 2 * 2 * length * shape.width
    times = 4 if again == "full" else 3
    block = times * (sum(products) + attention) - (products[-1] if again == "full" else 0)
    if again == "selective":
        block += sum(each for k, each in enumerate(products[:-1], 1) if k % 2 == 0)
    head = 3 * 2 * shape.width * shape.vocab
    return sequences * length * (shape.layers * block + head)


@right("model_flops")
def with_attention_in_the_list(shape, sequences, length, again="none"):
    tokens = sequences * length
    size = shape.width // shape.heads
    scores = 2 * sequences * shape.heads * length * length * size
    works = [(2 * tokens * n * m, k % 2 == 1) for k, (n, m) in enumerate(shape.products)]
    works[-1] = works[-1][0], False
    forward = sum(flops for flops, _ in works) + 2 * scores
    more = 0
    if again == "full":
        more = forward - works[-1][0]
    elif again == "selective":
        more = sum(flops for flops, is_second in works if is_second)
    return shape.layers * (3 * forward + more) + 6 * tokens * shape.width * shape.vocab


# fits


@right("fits")
def three_moments(shape, ranks, sequences, length, again="none"):
    tokens, d, h = sequences * length, shape.width, shape.hidden
    inner = (8 * d + 4 * h if shape.gated else 8 * d + 2 * h) * tokens
    some = (2 * d + sum(m for k, (_, m) in enumerate(shape.products) if k % 2 == 0)) * tokens
    kept = shape.layers * (
        inner if again == "none" else some if again == "selective" else d * tokens
    )
    block = 4.5 * shape.block + shape.vocab * d + (0 if again == "none" else inner)
    part = shape.parameters / ranks
    moments = [kept + 6 * tokens * shape.vocab, kept + block, 2 * part + block]
    return round(2 * (6 * part + shape.root + max(moments)))


# roof


@right("roof")
def by_a_queue(operations, machine):
    queue = deque((k * machine.launch, *each) for k, each in enumerate(operations, 1))
    clock, limits = 0.0, []
    while queue:
        ready, flops, nbytes = queue.popleft()
        times = {"arithmetic": flops / machine.flops, "memory": nbytes / machine.bandwidth}
        limits.append("launches" if clock < ready else max(times, key=times.get))
        clock = max(clock, ready) + max(times.values())
    return limits, clock


@right("roof")
def by_a_running_maximum(operations, machine):
    if not operations:
        return [], 0.0
    flops, nbytes = np.array(operations, dtype=float).T
    parts = np.stack([flops / machine.flops, nbytes / machine.bandwidth])
    work = parts.max(0)
    before = np.concatenate([[0.0], work.cumsum()[:-1]])
    launched = machine.launch * np.arange(1, len(work) + 1)
    starts = np.maximum.accumulate(launched - before) + before
    free = np.concatenate([[0.0], (starts + work)[:-1]])
    names = np.where(parts[0] >= parts[1], "arithmetic", "memory")
    limits = np.where(launched > free + 1e-15, "launches", names)
    return [str(each) for each in limits], float(starts[-1] + work[-1])


# hidden_from


def messages_and_work(way, block, width, n, flops, bandwidth, latency, tokens):
    """Yield pairs of seconds: of messages, and of arithmetic."""

    def trip(nbytes):
        return (n - 1) * (latency + nbytes / n / bandwidth)

    if way == "shards":
        yield trip(2 * block), 2 * block * tokens / flops
        yield trip(2 * block) + trip(4 * block), 4 * block * tokens / flops
    elif way == "copies":
        yield 2 * trip(4 * block), 4 * block * tokens / flops
    else:
        yield 2 * trip(2 * width * tokens / 2), 2 * block / n * tokens / 2 / flops


@right("hidden_from")
def by_bisection(way, block, width, n, flops, bandwidth, latency):
    rates = way, block, width, n, flops, bandwidth, latency

    def hidden(tokens):
        return all(work >= moved for moved, work in messages_and_work(*rates, tokens))

    low, high = 0, 10**9
    if not hidden(high):
        return math.inf
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if hidden(middle) else (middle + 1, high)
    return low


@right("hidden_from")
def with_fractions(way, block, width, n, flops, bandwidth, latency):
    block, rate, speed = Fraction(block), Fraction(bandwidth), Fraction(flops)
    hops = (n - 1) * Fraction(latency)
    if way == "slices":
        gain = block / n / speed - Fraction(2 * (n - 1) * width, n) / rate
        return math.ceil(2 * hops / gain) if gain > 0 else math.inf
    share = Fraction(n - 1, n) / rate
    if way == "copies":
        return math.ceil((2 * hops + 8 * block * share) * speed / (4 * block))
    forward = (hops + 2 * block * share) * speed / (2 * block)
    backward = (2 * hops + 6 * block * share) * speed / (4 * block)
    return math.ceil(max(forward, backward))


# read_profile


@right("read_profile")
def with_sets_of_time(trace, ridge):
    best = "", -1
    for rank in trace.ranks:
        spans = trace.of(rank)
        kernels = [s for s in spans if s.is_compute]
        calls = [s for s in spans if s.is_comm]
        busy = union((s.start_ns, s.end_ns) for s in kernels)
        moves = union((s.ready_ns, s.end_ns) for s in calls)
        taken = union([*busy, *moves])
        gains = Counter(network=total(moves) - total(intersect(moves, busy)))
        for name, some in (
            ("straggler", [s for s in calls if s.is_collective]),
            ("bubble", [s for s in calls if not s.is_collective]),
        ):
            waits = union((s.start_ns, s.ready_ns) for s in some)
            gains[name] = total(waits) - total(intersect(waits, taken))
        begins, _ = trace.window_of(rank)
        filled = union([*busy, *((s.start_ns, s.end_ns) for s in calls)])
        for start, _ in filled:
            if any(s.start_ns == start == s.args["launched_ns"] for s in kernels):
                gains["launches"] += start - begins
            begins = max(begins, max(end for first, end in filled if first == start))
        for s in kernels:
            needed = s.args["flops"] / ridge / s.args["bytes"]
            gains["memory"] += max(0.0, s.duration_ns * (1 - needed))
        name, ns = gains.most_common(1)[0]
        best = max(best, (name, ns), key=lambda each: each[1])
    return best


@right("read_profile")
def in_a_list(trace, ridge):
    found = {}
    for rank in trace.ranks:
        spans = trace.of(rank)
        busy = [(s.start_ns, s.end_ns) for s in spans if s.is_compute]
        moves = [(s.ready_ns, s.end_ns) for s in spans if s.is_comm]
        calls = [(s.start_ns, s.end_ns) for s in spans if s.is_comm]
        gaps = subtract([trace.window_of(rank)], busy + calls)
        late = [s for s in spans if s.is_compute and s.start_ns <= s.args["launched_ns"]]
        mine = {
            "network": total(subtract(moves, busy)),
            "launches": sum(b - a for a, b in gaps if any(s.start_ns == b for s in late)),
            "memory": sum(
                s.duration_ns * (1 - min(1, s.args["flops"] / s.args["bytes"] / ridge))
                for s in spans if s.is_compute
            ),
        }  # fmt: skip
        for name, wanted in (("straggler", True), ("bubble", False)):
            waits = [
                (s.start_ns, s.ready_ns) for s in spans if s.is_comm and s.is_collective is wanted
            ]
            mine[name] = total(subtract(subtract(waits, busy), moves))
        for name, ns in mine.items():
            found[name] = max(found.get(name, 0), ns)
    return [*max(found.items(), key=lambda item: item[1])]


# choose


def plans_of(shape, batch, gpus, host):
    """Yield all plans that divide the model and the batch."""
    for n in gpus:
        for stages in range(1, shape.layers + 1):
            for slices in range(1, host + 1):
                if n % (stages * slices) or shape.layers % stages:
                    continue
                if host % slices or shape.kv_heads % slices:
                    continue
                replicas = n // (stages * slices)
                for micro in range(1, batch + 1):
                    if batch % (replicas * micro) == 0:
                        for again in AGAIN:
                            yield Plan(replicas, stages, slices, again, micro)


@right("choose")
def by_heaps(shape, batch, gpus, host, memory, seconds, size):
    fast, cheap = [], []
    for number, plan in enumerate(plans_of(shape, batch, gpus, host)):
        if size(plan) > memory:
            continue
        took, n = seconds(plan), plan.replicas * plan.stages * plan.slices
        heapq.heappush(fast, (took, number, plan))
        heapq.heappush(cheap, (took * n, took, number, plan))
    if not fast:
        raise ValueError("nothing fits")
    return fast[0][-1], cheap[0][-1]


@right("choose")
def the_small_ones_first(shape, batch, gpus, host, memory, seconds, size):
    every = sorted(plans_of(shape, batch, gpus, host), key=size)
    fit = [plan for plan in every if size(plan) <= memory]
    times = {plan: seconds(plan) for plan in fit}
    if not times:
        raise ValueError(f"{memory} bytes are too few")
    bills = {p: t * p.replicas * p.stages * p.slices for p, t in times.items()}
    return [min(fit, key=times.get), min(fit, key=lambda p: (bills[p], times[p]))]
