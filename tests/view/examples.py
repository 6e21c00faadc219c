"""Synthetic traces that look like students' recordings."""

import random

from ddpkit.trace import Span, Trace, match_peers

MS = 1_000_000
FACTS = {"backend": "gloo", "device": "cpu", "torch": "2.13.0", "emulated": ""}


def ddp(ranks: int, buckets: int = 5, steps: int = 1, seed: int = 0) -> Trace:
    """Return steps of data-parallel training: a backward posts an all-reduce for each bucket."""
    rng = random.Random(seed)
    spans: list[Span] = []
    begins = [rng.randint(0, 5 * MS) for _ in range(ranks)]
    for step in range(steps):
        ends = _ddp_step(spans, rng, begins, buckets, first=step * buckets)
        begins = [end + rng.randint(0, 3 * MS) for end in ends]
    return Trace(match_peers(spans), ranks, FACTS)


def _ddp_step(
    spans: list[Span], rng: random.Random, begins: list[int], buckets: int, first: int
) -> list[int]:
    ranks = range(len(begins))
    speed = [rng.uniform(0.7, 1.1) for _ in ranks]
    posts: list[list[int]] = []
    done_backward = []
    for rank in ranks:
        at = begins[rank]
        for layer in range(6):
            end = at + int(rng.uniform(15, 40) * MS * speed[rank])
            spans.append(Span(rank, "compute", f"Linear {layer}", "forward", at, end))
            at = end
        post = []
        for _ in range(buckets):
            end = at + int(rng.uniform(30, 60) * MS * speed[rank])
            spans.append(Span(rank, "compute", "backward", "backward", at, end))
            at = end
            post.append(at - 8 * MS)
        posts.append(post)
        done_backward.append(at)
    last = [0] * len(begins)
    for bucket in range(buckets):
        ready = max(post[bucket] for post in posts)
        for rank in ranks:
            end = max(ready, last[rank]) + int(rng.uniform(8, 14) * MS)
            last[rank] = end
            spans.append(
                Span(rank, "comm", "all_reduce", "comm", posts[rank][bucket], end, 4_000_000,
                     seq=first + bucket, args={"bucket": bucket})
            )  # fmt: skip
    ends = []
    for rank in ranks:
        at = max(done_backward[rank], last[rank]) + 2 * MS
        spans.append(Span(rank, "compute", "SGD", "optimizer", at, at + 10 * MS))
        ends.append(at + 10 * MS)
    return ends


def token_ring(ranks: int = 4, laps: int = 2, hop_ns: int = 180_000) -> Trace:
    """Return a token ring: every rank waits for its left neighbour, adds, and sends right."""
    spans: list[Span] = []
    idle_since = [20_000 * rank for rank in range(ranks)]
    at = 60_000
    for hop in range(ranks * laps):
        rank, right = hop % ranks, (hop + 1) % ranks
        spans.append(
            Span(rank, "comm", "send", "comm", at, at + hop_ns // 2, 4, right, blocked_ns=at)
        )
        idle_since[rank] = at + hop_ns // 2 + 9_000
        spans.append(
            Span(right, "comm", "recv", "comm", idle_since[right], at + hop_ns, 4, rank,
                 blocked_ns=idle_since[right])
        )  # fmt: skip
        at += hop_ns + 25_000
    return Trace(match_peers(spans), ranks, FACTS)


def done_early() -> Trace:
    """Return a trace in emulated time: rank 0 computes for 100 ms before it waits for a short
    isend."""
    spans = [
        Span(0, "comm", "isend", "comm", MS, 2 * MS, 4, 1, collected_ns=101 * MS),
        Span(0, "compute", "busy", "span", MS, 101 * MS),
        Span(0, "comm", "isend", "comm", 50 * MS, 52 * MS, 4, 1, collected_ns=101 * MS),
        Span(1, "comm", "recv", "comm", MS, 2 * MS, 4, 0, blocked_ns=MS, collected_ns=2 * MS),
        Span(1, "comm", "recv", "comm", 50 * MS, 52 * MS, 4, 0, blocked_ns=50 * MS),
    ]
    return Trace(spans, 2, FACTS | {"emulated": "1 ms", "time": "emulated"})


def compute_only() -> Trace:
    """Return the training of one process, without communication."""
    spans, at = [], 0
    for _ in range(3):
        for kind, length in (("forward", 2), ("backward", 4), ("optimizer", 1)):
            spans.append(Span(0, "compute", kind, kind, at, at + length * MS))
            at += length * MS + 100_000
    return Trace(spans, 1, {"backend": "gloo", "device": "cpu"})


def own_spans(ranks: int = 3) -> Trace:
    """Return a ring all-reduce by hand: messages, and a span of the student around the adding."""
    spans = []
    for rank in range(ranks):
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        at = 40_000 * rank
        for _ in range(2 * (ranks - 1)):
            spans += [
                Span(rank, "comm", "isend", "comm", at, at + 900_000, 1_000_000, right),
                Span(rank, "comm", "irecv", "comm", at, at + 950_000, 1_000_000, left,
                     blocked_ns=at + 20_000),
                Span(rank, "compute", "add the chunk", "span", at + 960_000, at + 1_400_000),
            ]  # fmt: skip
            at += 1_450_000
    facts = FACTS | {"emulated": "1 Gbit/s, 200 us"}
    return Trace(match_peers(spans), ranks, facts)


def many_spans(count: int = 100_000, ranks: int = 4) -> Trace:
    rng = random.Random(1)
    spans = []
    for rank in range(ranks):
        at = 0
        for _ in range(count // ranks):
            kind = rng.choice(("forward", "backward", "optimizer", "comm"))
            end = at + rng.randint(1_000, 60_000)
            if kind == "comm":
                spans.append(
                    Span(rank, "comm", "all_reduce", "comm", at - 9_000, end, 1000, ready_ns=at)
                )
            else:
                spans.append(Span(rank, "compute", kind, kind, at, end))
            at = end + rng.randint(0, 4_000)
    return Trace(spans, ranks, FACTS)


def blocked_in_forward() -> Trace:
    """Return steps of torch's DDP after the first step: a broadcast in the middle of a forward."""
    spans = []
    for rank in range(2):
        at = 5 * MS * rank
        spans += [
            Span(rank, "compute", "DDP", "forward", at, 60 * MS),
            Span(rank, "compute", "Linear", "forward", at + 30 * MS, 55 * MS),
            Span(rank, "comm", "broadcast", "comm", at + 5 * MS, 30 * MS, 4096, seq=1,
                 blocked_ns=at + 5 * MS),
            Span(rank, "compute", "backward", "backward", 60 * MS, 100 * MS),
            Span(rank, "comm", "all_reduce", "comm", 65 * MS, 98 * MS, 4096, seq=2,
                 blocked_ns=70 * MS),
            Span(rank, "compute", "log the loss", "span", 101 * MS, 120 * MS),
            Span(rank, "comm", "barrier", "comm", 102 * MS, 110 * MS, seq=3, blocked_ns=102 * MS),
        ]  # fmt: skip
    return Trace(match_peers(spans), 2, FACTS)
