"""Lab 07: torch's DistributedDataParallel, opened up and extended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ddpkit.checks.lab07.hints import FP16, GOSSIP, PAIRS, POWERSGD
from ddpkit.checks.lab07.hints_more import BARRIER, RING, UNEVEN
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.exercises.values import Close
from ddpkit.protocol.per_rank import PerRank

Answer = Callable[..., Any]


def collected(did: Did) -> list[int]:
    """Bytes that each rank gave to collectives."""
    counts = [did.trace.traffic.collectives(rank).values() for rank in did.trace.ranks]
    return [sum(each.bytes for each in of_rank) for of_rank in counts]


# fp16_hook


@exercise("fp16_hook", lab="07", points=2)
def fp16_hook(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of the gradients, sent as float16, started and not waited for."""
    import torch

    from ddpkit.checks.lab07.buckets import averaged

    exact = [(n, None, dtype, _odd(rng, n, n)) for n, dtype in ((2, "float32"), (4, "float64"))]
    large = [[64.0 * rng.randrange(600, 750) for _ in range(3)] for _ in range(2)]
    any_number = [[rng.uniform(-1, 1) for _ in range(4)] for _ in range(3)]
    for n, members, dtype, values in (
        *exact,
        (2, None, "float32, large", large),
        (3, None, "float32, any", any_number),
        (3, [0, 2], "float32, the group of ranks 0 and 2", _odd(rng, 3, 2)),
    ):
        kind = getattr(torch, dtype.partition(",")[0])
        flats = [torch.tensor(row, dtype=kind) for row in values]
        ranks = members or list(range(n))
        mean = torch.stack([flats[rank] for rank in ranks]).mean(dim=0)
        wanted: Any = Close(mean, 3) if values is any_number else mean
        yield Case(
            title(n, dtype),
            asked(
                partial(averaged, answer, members),
                PerRank(flats),
                world_size=n,
                see={"gave": "returned", "bytes": collected, "collectives": "collectives"},
            ),
            {
                "gave": [wanted if rank in ranks else "no member" for rank in range(n)],
                "bytes": [2 * len(mean) * (rank in ranks) for rank in range(n)],
                "collectives": ["all_reduce"],
            },
            hints=FP16,
            given={"n": n, "mean": mean, "size": len(ranks), "members": members},
        )
    yield _in_ddp("in_ddp", answer, rng, (None,), digits=2, hints=FP16)


def _odd(rng: random.Random, n: int, ranks: int) -> list[list[float]]:
    """Whole numbers by rank, whose sum over so many ranks takes all 11 binary digits of float16."""
    rows = [[float(rng.randrange(1040 // ranks, 2000 // ranks) & ~1) for _ in range(4)]
            for _ in range(n)]  # fmt: skip
    rows[0] = [each + 1 for each in rows[0]]
    return rows


def _in_ddp(
    run: str, answer: Answer, rng: random.Random, given: Sequence[Any], *, digits: int, hints: Any
) -> Case:
    """Backwards in torch's DDP on two ranks, the first ones without the answer."""
    from ddpkit.checks.lab06 import alone
    from ddpkit.checks.lab06.models import batches, linear
    from ddpkit.checks.lab07 import buckets

    net, steps = linear(rng.randrange(10**6)), buckets.STEPS_AS_EVER + 2
    few = run == "low_rank_in_ddp"  # a gradient of one image is of rank 1
    parts = [_cut(batches(rng.randrange(10**6), steps), 1 if few else 4) for _ in range(2)]
    later = list(zip(*parts, strict=True))[buckets.STEPS_AS_EVER :]
    means = [alone.vector(alone.mean(alone.gradients_of(net, each))) for each in later]
    return Case(
        "torch's DDP on 2 ranks",
        asked(
            partial(getattr(buckets, run), answer, *given),
            net,
            PerRank(parts),
            world_size=2,
            see={"gradients": "returned"},
        ),
        {"gradients": [[Close(mean, digits) for mean in means]] * 2, "ranks agree": True},
        read=lambda seen: {
            "gradients": seen["gradients"],
            "ranks agree": same(*seen["gradients"]),
        },
        hints=hints,
        given={"in ddp": True},
    )


def _cut(parts: Sequence[Any], images: int) -> list[Any]:
    return [(x[:images], y[:images]) for x, y in parts]


# powersgd_hook


@exercise("powersgd_hook", lab="07", points=4)
def powersgd_hook(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Two thin matrices for each gradient, what is left out sent later, the last Q to start."""
    yield _low_mean(answer, rng)
    yield _warm(answer, rng)
    yield _again(answer, rng)
    yield _shapes(answer, rng)
    yield _in_ddp("low_rank_in_ddp", answer, rng, (2,), digits=3, hints=POWERSGD)


def _low_mean(answer: Answer, rng: random.Random) -> Case:
    import torch

    from ddpkit.checks.lab07 import buckets, low_rank

    n, (rows, columns) = 3, (rng.randrange(10, 14), rng.randrange(7, 9))
    seed = rng.randrange(10**6)
    shapes: list[tuple[int, ...]] = [(rows, columns), (rows,), (5, rows)]
    means = [low_rank.low_rank(each, 2, seed + i).float() for i, each in enumerate(shapes)]
    parts = low_rank.by_rank(means, n, seed)
    thin = 4 * (2 * (rows + columns) + rows + 2 * (5 + rows))
    return Case(
        title(n, f"float32[{rows}, {columns}], a mean of rank 2"),
        asked(
            partial(buckets.compressed, answer, 2),
            PerRank([[[each]] for each in parts]),
            world_size=n,
            see={"gave": "returned", "bytes": collected, "few": _few},
        ),
        {
            "matrix": Close(means[0]),
            "vector": Close(means[1]),
            "another": Close(means[2]),
            "bytes": [thin] * n,
            "few": True,
            "ranks agree": True,
        },
        weight=4,
        read=partial(_bucket_read, rows * columns, [rows, columns]),
        hints=POWERSGD,
        given={
            "n": n, "own": parts[0], "mean": means, "thin": thin, "several": False,
            "space": torch.linalg.qr(means[0][:, :2]).Q,
        },
    )  # fmt: skip


def _few(did: Did) -> bool:
    """Whether a bucket takes three collectives at most."""
    counts = did.trace.traffic.collectives(0).values()
    return sum(each.times for each in counts) <= 3


def _bucket_read(numbers: int, shape: list[int], seen: Observed) -> Observed:
    """The matrix and the vector of rank 0's bucket."""
    gave = [ranks[0][0] for ranks in seen["gave"]]
    if (
        not hasattr(gave[0], "numel")
        or gave[0].dim() != 1
        or gave[0].numel() != numbers + 6 * shape[0]
    ):
        return {**seen, "matrix": gave[0], "vector": "", "another": "", "ranks agree": False}
    return {
        **seen,
        "matrix": gave[0][:numbers].reshape(shape),
        "vector": gave[0][numbers : numbers + shape[0]],
        "another": gave[0][numbers + shape[0] :].reshape(5, shape[0]),
        "ranks agree": all(same(each, gave[0]) for each in gave),
    }


TIMES, LITTLE = 24, 8  # steps; what may be left out in the end, in means


def _again(answer: Answer, rng: random.Random) -> Case:
    import torch

    from ddpkit.checks.lab07 import buckets, low_rank

    n, seed = 2, rng.randrange(10**6)
    mean = torch.randn(20, 12, generator=low_rank.generator(seed))
    parts = low_rank.parts_of(mean, n, seed + 1)
    return Case(
        f"the same gradient {TIMES} times",
        asked(
            partial(buckets.compressed_again, answer, 2),
            PerRank([[each] for each in parts]),
            TIMES,
            world_size=n,
            see={"gave": "returned"},
        ),
        {"left out": "little"},
        weight=2,
        read=partial(_left_out, mean),
        hints=POWERSGD,
    )


def _left_out(mean: Any, seen: Observed) -> Observed:
    """How much of what should have been sent was not, in words."""
    total, kept = seen["gave"][0]
    wanted = TIMES * mean.flatten()
    if not hasattr(total, "shape") or total.shape != wanted.shape:
        return {"left out": "all", "kept": kept}
    far = float((total - wanted).norm() / mean.norm())
    words = "little" if far <= LITTLE else f"as much as in {far:.0f} steps"
    return {"left out": words, "kept": kept}


def _warm(answer: Answer, rng: random.Random) -> Case:
    import torch

    from ddpkit.checks.lab07 import buckets, low_rank

    n, seed = 2, rng.randrange(10**6)
    first = low_rank.low_rank((12, 9), 2, seed)
    second = torch.randn(12, 9, generator=low_rank.generator(seed + 1), dtype=first.dtype)
    parts = [low_rank.parts_of(each, n, seed + 2 + i) for i, each in enumerate((first, second))]
    return Case(
        "another gradient afterwards",
        asked(
            partial(buckets.compressed, answer, 2),
            PerRank([[[[step[rank]]] for step in parts] for rank in range(n)]),
            world_size=n,
            see={"gave": "returned"},
        ),
        {"first": Close(first.flatten()), "second": Close(low_rank.warm(first, second).flatten())},
        read=lambda seen: {"first": seen["gave"][0][0][0], "second": seen["gave"][0][1][0]},
        hints=POWERSGD,
    )


BUCKETS: list[list[tuple[int, ...]]] = [[(4, 2, 3, 3), (4,)], [(6, 5), (), (1, 7), (5, 1)]]


def _shapes(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab07 import buckets, low_rank

    n, seed = 2, rng.randrange(10**6)
    shapes = [shape for each in BUCKETS for shape in each]
    means = [
        [
            [low_rank.low_rank(shape, 2, seed + 100 * step + 10 * i + j)
             for j, shape in enumerate(shapes)]
            for i, shapes in enumerate(BUCKETS)
        ]
        for step in range(2)
    ]  # fmt: skip
    parts = [
        [low_rank.by_rank(each, n, seed + 7 * i) for i, each in enumerate(step)] for step in means
    ]
    of_ranks = [[[each[rank] for each in step] for step in parts] for rank in range(n)]
    return Case(
        "2 buckets in turn, 0 to 4 dimensions, float64",
        asked(
            partial(buckets.compressed, answer, 2),
            PerRank(of_ranks),
            world_size=n,
            see={"gave": "returned", "bytes": collected},
        ),
        {
            "gave": [[[Close(low_rank.flat(each)) for each in step] for step in means]] * n,
            "bytes": [2 * 8 * sum(low_rank.thin(shape, 2) for shape in shapes)] * n,
        },
        hints=POWERSGD,
        given={"several": True},
    )


# pair_groups


@exercise("pair_groups", lab="07", points=1)
def pair_groups(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """For each binary digit the group of this rank and of that which differs in it."""
    from ddpkit.checks.lab07.buckets import members_and_sums

    for n in (2, 4, 8):
        pairs = [
            [sorted([rank, rank ^ 1 << i]) for i in range(n.bit_length() - 1)] for rank in range(n)
        ]
        yield Case(
            title(n),
            asked(partial(members_and_sums, answer), world_size=n, see={"groups": "returned"}),
            {"groups": [[[*pair, sum(pair)] for pair in mine] for mine in pairs]},
            hints=PAIRS,
            given={"n": n},
            stop_if="wrong",
            trivial=n == 2,
        )


# gossip_hook


@exercise("gossip_hook", lab="07", points=2)
def gossip_hook(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of two ranks, with another partner in each step."""
    import torch

    from ddpkit.checks.lab07.buckets import gossiped

    for n, steps in ((2, 1), (4, 3)):
        drawn = torch.tensor(
            [[[[4.0 * rng.randrange(1, 200) for _ in range(3)] for _ in range(2)]
              for _ in range(steps)] for _ in range(n)]
        )  # fmt: skip
        partners = [[rank ^ 1 << k % (n.bit_length() - 1) for k in range(steps)]
                    for rank in range(n)]  # fmt: skip
        means = [
            ([list((drawn[rank, k] + drawn[partners[rank][k], k]) / 2) for k in range(steps)],
             steps)
            for rank in range(n)
        ]  # fmt: skip
        yield Case(
            title(n, f"{steps} steps" if steps > 1 else "1 step", "2 buckets each"),
            asked(
                partial(gossiped, answer),
                PerRank([[list(step) for step in of_rank] for of_rank in drawn]),
                world_size=n,
                see={"gave": "returned", "to all": _to_all},
            ),
            {"gave": means, "to all": 0},
            hints=GOSSIP,
            given={"n": n, "drawn": drawn, "steps": steps},
            stop_if="wrong",
        )
    yield _in_ddp("gossip_in_ddp", answer, rng, (), digits=4, hints=GOSSIP)


def _to_all(did: Did) -> int:
    """Collectives of the group of all ranks."""
    return sum(one.is_collective and not one.group for one in did.trace.of(0))


# train_uneven


@exercise("train_uneven", lab="07", points=3)
def train_uneven(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """All batches of all ranks, the mean over those that have one, and one end for all."""
    from ddpkit.checks.lab06.models import batches, linear
    from ddpkit.checks.lab07 import uneven

    for lengths in ([3, 1, 2], [0, 2], [2, 2], [0, 0, 0], [4]):
        net, n = linear(rng.randrange(10**6)), len(lengths)
        parts = [batches(rng.randrange(10**6), length) for length in lengths]
        counts = uneven.counts_of(parts)
        yield Case(
            f"{title(n)}, {', '.join(map(str, lengths))} batches",
            asked(
                partial(uneven.trained, answer),
                net,
                PerRank(parts),
                world_size=n,
                see={"gave": "returned"},
            ),
            {
                "counts": [counts] * n,
                "parameters": Close(uneven.alone(net, parts)),
                "ranks agree": True,
            },
            read=_trained_read,
            hints=UNEVEN,
            given={
                "right_counts": counts,
                "lengths": lengths,
                "mistaken": {each: uneven.alone(net, parts, each) for each in uneven.MISTAKES},
            },
            trivial=not any(lengths),
            stop_if="raised",
        )


def _trained_read(seen: Observed) -> Observed:
    counts, parameters = zip(*seen["gave"], strict=True)
    return {
        "counts": list(counts),
        "parameters": parameters[0],
        "ranks agree": all(same(each, parameters[0]) for each in parameters),
    }


# monitored_barrier


@exercise("monitored_barrier", lab="07", points=2, returns=False)
def monitored_barrier(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A barrier that says within its time who is missing, on every rank that waits."""
    from ddpkit.checks.lab07.meeting import alone_of, visits

    name, n = rng.choice(["start", "epoch", "end"]), 5
    absent = sorted(rng.sample(range(n), 2))
    late = rng.randrange(1, 3)
    plays: list[tuple[str, list[list[tuple[str, float]]], float]] = [
        ("3 ranks come", [[(name, 0.25 * rank)] for rank in range(3)], 2.0),
        (
            "5 ranks, of which 2 never come",
            [[] if rank in absent else [(name, 0.1 * rank)] for rank in range(n)],
            2.0,
        ),
        (
            "twice, and the second time rank 1 is missing",
            [[(name, 0.0), *([("again", 0.5)] * (rank != 1))] for rank in range(3)],
            3.0,
        ),
        (
            "one is too late, and then all come",
            [[(name, 4.0 * (rank == late)), ("next", 5.0 - 2 * (rank == late))]
             for rank in range(3)],
            2.0,
        ),
    ]  # fmt: skip
    for about, plans, timeout in plays:
        yield Case(
            about,
            partial(visits, answer, plans, timeout),
            {"ends": _ends(plans, timeout), "in time": True},
            read=partial(_visits_read, timeout),
            hints=BARRIER,
            given={"plans": plans, "timeout": timeout},
        )
    yield Case(
        "a store of torch's, 1 of 2 ranks",
        partial(alone_of, answer, 2, 0.05),
        {"ends": [[[1]]]},
        hints=BARRIER,
        given={"plans": [[(name, 0.0)], []], "timeout": 0.05},
    )


def _visits_read(timeout: float, seen: Observed) -> Observed:
    """Whether nobody has waited for longer than the time, or half as long again: some look."""
    longest = max(seconds for of_rank in seen["took"] for seconds in of_rank)
    return {**seen, "in time": longest <= 1.5 * timeout, "longest": longest}


def _ends(plans: Sequence[Sequence[tuple[str, float]]], timeout: float) -> list[list[Any]]:
    """How each visit ends: "passes", or with the ranks that have not come in its time."""
    came: dict[str, dict[int, float]] = {}
    found: list[list[Any]] = [[] for _ in plans]
    now = [0.0] * len(plans)
    for visit in range(max(map(len, plans))):
        for rank, plan in enumerate(plans):
            if visit < len(plan):
                now[rank] += plan[visit][1]
                came.setdefault(plan[visit][0], {})[rank] = now[rank]
        for rank, plan in enumerate(plans):
            if visit < len(plan):
                times = came[plan[visit][0]]
                until = now[rank] + timeout
                missing = [r for r in range(len(plans)) if times.get(r, until + 1) > until]
                found[rank].append(missing or "passes")
                now[rank] = until if missing else max(now[rank], *times.values())
    return found


# ring_all_reduce


@exercise("ring_all_reduce", lab="07", points=2, returns=False)
def ring_all_reduce(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """What c10d calls for an all-reduce: each tensor becomes its sum, by a ring."""
    import torch

    from ddpkit.checks.lab07 import backend

    def drawn(n: int, length: int) -> list[Any]:
        return [torch.tensor([float(rng.randrange(1, 99)) for _ in range(length)])
                for _ in range(n)]  # fmt: skip

    x, short, several = drawn(3, 6), drawn(3, 2), [drawn(2, 4), drawn(2, 8)]
    lists = [list(each) for each in zip(*several, strict=True)]
    sums = [torch.stack(each).sum(dim=0) for each in (x, short, *several)]
    wide = [each.view(4, 3) for each in drawn(2, 12)]
    mixed = [each.clone() for each in wide]
    for each in mixed:
        each[:, :2] = torch.stack(wide).sum(dim=0)[:, :2]
    for about, run, given, wanted, nbytes in (
        ("3 ranks, float32[6]", backend.summed, x, [sums[0]] * 3, [32] * 3),
        ("3 ranks, float32[2]", backend.summed, short, [sums[1]] * 3, None),
        ("2 ranks, two tensors", backend.all_summed, lists, [sums[2:]] * 2, [48] * 2),
        ("2 ranks, two columns of three", backend.two_columns, wide, mixed, [32] * 2),
    ):
        yield Case(
            about,
            asked(
                partial(run, answer),
                PerRank(given),
                world_size=len(given),
                see={"gave": "returned", "bytes": "bytes", "collectives": "collectives"},
            ),
            {"gave": wanted, "collectives": []} | ({"bytes": nbytes} if nbytes else {}),
            hints=RING,
            given={"inputs": given, "several": run is backend.all_summed, "n": len(given)},
        )
    yield Case(
        "2 ranks, the maximum",
        asked(
            partial(backend.refused, answer),
            PerRank(drawn(2, 4)),
            world_size=2,
            see={"gave": "returned"},
        ),
        {"gave": ["NotImplementedError"] * 2},
        hints=RING,
        given={"maximum": True},
        trivial=True,
    )
    yield _on_the_ring(answer, rng)


def _on_the_ring(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab06 import alone
    from ddpkit.checks.lab06.models import batches, linear
    from ddpkit.checks.lab07 import backend

    net = linear(rng.randrange(10**6))
    parts = [batches(rng.randrange(10**6), 2) for _ in range(3)]
    steps = list(zip(*parts, strict=True))
    means = [alone.vector(alone.mean(alone.gradients_of(net, each))) for each in steps]
    return Case(
        "torch's DDP on 3 ranks",
        asked(
            partial(backend.ddp_on_it, answer),
            net,
            PerRank(parts),
            world_size=3,
            see={"gradients": "returned"},
        ),
        {"gradients": [[Close(mean) for mean in means]] * 3, "ranks agree": True},
        read=lambda seen: {
            "gradients": seen["gradients"],
            "ranks agree": all(same(each, seen["gradients"][0]) for each in seen["gradients"]),
        },
        hints=RING,
    )
