# mypy: ignore-errors
"""Answers of lab 20 (real_sizes).

Generated from solutions/20_real_sizes.py by `make release`; do not edit.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace

from ddpkit.trace.intervals import subtract, total


@dataclass(frozen=True)
class Sizes:
    """The sizes of a transformer.

    gated: True for an MLP of three matrices, as in Llama; False for an MLP of two matrices.
    tied: True if the head and the embedding share one matrix.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    gated: bool = True
    tied: bool = False


class Shape(Sizes):
    """Sizes with counts, and with (in, out) of each matrix of a block in the order of a forward."""

    @property
    def products(self):
        d, kv, h = self.width, self.width // self.heads * self.kv_heads, self.hidden
        if self.gated:
            return [(d, d), (d, kv), (d, kv), (d, d), (d, h), (d, h), (h, d)]
        return [(d, d + 2 * kv), (d, d), (d, h), (h, d)]

    block = property(lambda self: sum(n * m for n, m in self.products) + 2 * self.width)
    root = property(lambda self: (2 - self.tied) * self.vocab * self.width + self.width)
    parameters = property(lambda self: self.layers * self.block + self.root)


LLAMA_8B = Shape(32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = Shape(80, 8192, 64, 8, 28672, 128256)
LLAMA_405B = Shape(126, 16384, 128, 8, 53248, 128256)
MPT_70B = Shape(80, 8192, 64, 64, 32768, 50368, gated=False, tied=True)


def model_flops(shape, sequences, length, again="none"):
    """Return the FLOPs of forward and backward: an int.

    A multiplication and an addition are two. Attention counts in full: the scores and the sum of
    values are two products of length by length for each head. A backward is twice its forward.
    Embedding, norms and other element-wise work count as 0; the head counts. With again="full",
    each block is computed once more, except its last product: torch stops as soon as backward has
    all that it needs. With "selective", only products 2, 4, 6, ... of a block are computed once
    more, except the last product.
    """
    tokens = sequences * length
    dense = [2 * tokens * n * m for n, m in shape.products]
    attention = 4 * tokens * length * shape.width
    block, head = sum(dense) + attention, 2 * tokens * shape.width * shape.vocab
    more = {"none": 0, "selective": sum(dense[1:-1:2]), "full": block - dense[-1]}
    return 3 * (shape.layers * block + head) + shape.layers * more[again]


def fits(shape, ranks, sequences, length, again="none"):
    """Return the most bytes that a rank holds in a step of FSDP2 with AdamW.

    A rank has its part of three float32 numbers for each parameter: the parameter and Adam's two
    numbers. The root's parameters stay gathered in bfloat16 during the step. For its backward, a
    block keeps 8 width + 4 hidden bfloat16 numbers for each token (2 hidden if it is not gated);
    with "full", only its input; with "selective", its input, attention's output, and the outputs of
    products 1, 3, 5, 7. At the loss, the logits are in memory three times, in float32. While a
    block's backward runs, the rank holds 9 bytes for each parameter of the block, the head's
    gradient in bfloat16 and, with checkpoints, all that "none" would keep for this block. During
    the first block's backward, the rank also holds its part of all gradients, in float32.
    """
    tokens, d, mine = sequences * length, shape.width, shape.parameters / ranks
    inside = 8 * d + (4 if shape.gated else 2) * shape.hidden
    selected = 2 * d + sum(m for _, m in shape.products[::2])
    kept = {"none": inside, "selective": selected, "full": d}[again]
    held = shape.layers * kept * 2 * tokens
    working = 2 * shape.vocab * d + 9 * shape.block
    if again != "none":
        working += inside * 2 * tokens
    loss = held + 12 * tokens * shape.vocab
    return 12 * mine + 2 * shape.root + max(loss, held + working, 4 * mine + working)


@dataclass(frozen=True)
class Machine:
    """Rates that programs really reach, not the rates of a data sheet."""

    flops: float  # FLOP/s
    bandwidth: float  # bytes/s
    launch: float  # seconds


def roof(operations, machine):
    """Return a list with the limit of each operation, and the end of the last operation in seconds.

    operations is a list of (flops, nbytes). The host launches one operation after another and never
    waits: it launches operation k, counted from 1, at k * machine.launch. The device runs one
    operation at a time, each after its launch and after the previous operation. An operation takes
    the longer of flops / machine.flops and nbytes / machine.bandwidth. Its limit is "launches" if
    the device has waited for its launch, and otherwise "arithmetic" or "memory", whichever takes
    longer.
    """
    limits, free = [], 0.0
    for number, (flops, nbytes) in enumerate(operations, 1):
        launched = number * machine.launch
        arithmetic, memory = flops / machine.flops, nbytes / machine.bandwidth
        work = "arithmetic" if arithmetic >= memory else "memory"
        limits.append("launches" if launched > free else work)
        free = max(launched, free) + max(arithmetic, memory)
    return limits, free


def hidden_from(way, block, width, n, flops, bandwidth, latency):
    """Return the least number of tokens of a rank that hides the communication; math.inf if none.

    A stretch has `block` parameters: 2 * block FLOPs a token in forward, 4 * block in backward.
    Each rank reaches `flops` FLOP/s. The n ranks form a ring: an all-gather or a reduce-scatter of
    B bytes takes n - 1 hops of latency + B / n / bandwidth, and an all-reduce takes twice as long.
    One communication runs at a time. "shards": a block's forward hides the gather of the next
    block's parameters, in bfloat16; a block's backward hides such a gather too, and also the
    reduce-scatter of the previous block's gradients, in float32. "copies": a block's backward hides
    the all-reduce of the previous block's gradients, in float32. "slices": a rank has 1 / n of a
    block. Its tokens are two halves that take turns: the forward of one half hides the all-reduce
    of the other half, with width bfloat16 numbers for each token.
    """

    def trip(nbytes):
        return (n - 1) * (latency + nbytes / n / bandwidth)

    per_token = 2 * (n - 1) * width / n / bandwidth  # an all-reduce of one half
    stretches = {  # seconds: messages, messages per token, arithmetic per token
        "shards": [
            (trip(2 * block), 0, 2 * block / flops),
            (trip(2 * block) + trip(4 * block), 0, 4 * block / flops),
        ],
        "copies": [(2 * trip(4 * block), 0, 4 * block / flops)],
        "slices": [(2 * trip(0), per_token, block / n / flops)],
    }[way]
    tokens = [once / (work - more) if work > more else math.inf for once, more, work in stretches]
    return max(each if each == math.inf else math.ceil(each) for each in tokens)


def read_profile(trace, ridge):
    """Return the limit of a step, and the most nanoseconds that mending the limit can gain.

    Spans of the device have args["flops"], args["bytes"] and args["launched_ns"]. Each rank has
    five times. "memory": for each kernel with less than `ridge` FLOPs a byte, the part of its time
    that its arithmetic does not need. "launches": idle time that ends when a kernel starts that was
    launched at this moment. "network": bytes move (from ready_ns to end_ns), and nothing computes.
    "straggler": nothing computes, nothing moves, and a collective waits for a rank (from start_ns
    to ready_ns). "bubble": the same, but a message waits. The gain of a name is its largest time on
    any rank; the limit is the name with the largest gain.
    """
    most = Counter()
    for rank in trace.ranks:
        work = [s for s in trace.of(rank) if s.is_compute]
        ops = [s for s in trace.of(rank) if s.is_comm]
        busy, asked = [(s.start_ns, s.end_ns) for s in work], [(o.start_ns, o.end_ns) for o in ops]
        moving = subtract([(o.ready_ns, o.end_ns) for o in ops], busy)
        idle = subtract([trace.window_of(rank)], busy + asked)
        late = {s.start_ns for s in work if s.start_ns == s.args["launched_ns"]}
        gains = {}
        for name, collective in (("straggler", True), ("bubble", False)):
            posted = [(o.start_ns, o.ready_ns) for o in ops if o.is_collective == collective]
            gains[name] = total(subtract(posted, busy + moving))
        shares = [(s, max(0, 1 - s.args["flops"] / s.args["bytes"] / ridge)) for s in work]
        gains["memory"] = round(sum(s.duration_ns * share for s, share in shares))
        gains["launches"] = sum(end - start for start, end in idle if end in late)
        most |= Counter(gains, network=total(moving))
    return most.most_common(1)[0]


AGAIN = "none", "selective", "full"


@dataclass(frozen=True)
class Plan:
    replicas: int
    stages: int
    slices: int
    again: str
    micro: int  # sequences in a micro-batch

    @property
    def gpus(self):
        return self.replicas * self.stages * self.slices


def plan_bytes(plan, shape, length, batch):
    """Return an upper bound of the bytes of a rank in the first stage: it includes the head's
    bytes.
    """
    stage = replace(shape, layers=shape.layers // plan.stages)
    held = min(plan.stages, batch // (plan.replicas * plan.micro))
    return fits(stage, plan.replicas, held * plan.micro, length, plan.again) / plan.slices


def plan_seconds(plan, shape, length, batch, machine, inside, between):
    """Return a step's seconds; inside (a GPU's link) and between (a host's) are (s, bytes/s)."""
    layers = shape.layers // plan.stages
    work = model_flops(shape, plan.micro, length, plan.again) / machine.flops
    work /= plan.stages * plan.slices
    sums = layers * (6 if plan.again == "full" else 4)  # all-reduces of the slices
    nbytes = 2 * plan.micro * length * shape.width
    added = sums * 2 * (plan.slices - 1) * (inside[0] + nbytes / plan.slices / inside[1])
    travels = 8 / 3 * shape.parameters / shape.layers  # mean of 2 gathers, 1 scatter
    moved = 3 * layers * (plan.replicas - 1) * (between[0] + travels / plan.replicas / between[1])
    turns = batch // (plan.replicas * plan.micro) + plan.stages - 1
    return turns * max(work + added, moved)


def choose(shape, batch, gpus, host, memory, seconds, size):
    """Return the fastest plan and the cheapest plan. Raise ValueError if no plan fits.

    gpus lists the numbers of GPUs that you may rent; a plan uses exactly one of these numbers.
    Stages divide the layers; slices divide the key heads and the `host` GPUs of a host; replicas *
    micro divides the batch, in sequences; again is one of AGAIN. A plan fits if size(plan) is at
    most memory. seconds(plan) is the time of a step: call it only if the plan fits. The cheapest
    plan has the least GPUs * seconds; of equally cheap plans, it is the fastest.
    """

    def divisors(n):
        return [k for k in range(1, n + 1) if n % k == 0]

    found = []
    counts = gpus, divisors(shape.layers), divisors(host), AGAIN, divisors(batch)
    for n, stages, slices, again, micro in itertools.product(*counts):
        plan = Plan(n // (stages * slices), stages, slices, again, micro)
        divides = plan.gpus == n and shape.kv_heads % slices == 0
        if divides and batch % (plan.replicas * micro) == 0 and size(plan) <= memory:
            found.append((seconds(plan), n, plan))
    if not found:
        raise ValueError(f"no plan fits into {memory} bytes")
    fastest = min(found, key=lambda each: each[0])
    cheapest = min(found, key=lambda each: (each[0] * each[1], each[0]))
    return fastest[2], cheapest[2]
