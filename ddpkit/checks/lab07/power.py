"""Lab 07: the cases of PowerSGD on buckets made by the check."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ddpkit.checks.lab07.hints import POWERSGD
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.exercises.values import Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


def low_mean(answer: Answer, rng: random.Random) -> Case:
    import torch

    from ddpkit.checks.lab07 import buckets, low_rank

    n, (rows, columns) = 3, (rng.randrange(10, 14), rng.randrange(7, 9))
    seed = rng.randrange(10**6)
    shapes: list[tuple[int, ...]] = [(rows, columns), (rows,), (5, rows), (4, columns)]
    means = [low_rank.low_rank(each, 2, seed + i).float() for i, each in enumerate(shapes)]
    means[2] = low_rank.unlike_ones(5, rows, 2, seed).float()
    parts = low_rank.by_rank(means, n, seed)
    thin = 4 * sum(low_rank.thin(each, 2) for each in shapes)
    starts = 4 * sum(low_rank.start(each, 2) for each in shapes)
    return Case(
        title(n, f"float32[{rows}, {columns}], a mean of rank 2"),
        asked(
            partial(buckets.compressed, answer, 2),
            PerRank([[[each]] for each in parts]),
            world_size=n,
            see={"gave": "returned", "bytes": "handed_in", "few": _few},
        ),
        {
            "matrix": Close(means[0]),
            "vector": Close(means[1]),
            "another": Close(means[2]),
            "last": Close(means[3]),
            "bytes": [thin] * n,
            "few": True,
            "ranks agree": True,
        },
        weight=4,
        read=lambda seen: _bucket_read(shapes, _without(seen, "bytes", thin, starts)),
        hints=POWERSGD,
        given={
            "n": n, "own": parts[0], "mean": means, "thin": thin,
            "starts": starts, "several": False,
            "space": torch.linalg.qr(means[0][:, :2]).Q,
        },
    )  # fmt: skip


def _few(did: Did) -> bool:
    """True if a bucket takes at most three collectives."""
    counts = did.trace.traffic.collectives(0).values()
    return sum(each.times for each in counts) <= 3


NAMES = ("matrix", "vector", "another", "last")  # the gradients of `low_mean`


def _bucket_read(shapes: Sequence[tuple[int, ...]], seen: Observed) -> Observed:
    """Split rank 0's bucket into its gradients, and add the gradients by name.

    "ranks agree" is True if all ranks have the same bucket.
    """
    gave = [ranks[0][0] for ranks in seen["gave"]]
    sizes = [prod(shape) for shape in shapes]
    if not hasattr(gave[0], "numel") or gave[0].dim() != 1 or gave[0].numel() != sum(sizes):
        others = dict.fromkeys(NAMES, "")
        return {**seen, **others, "matrix": gave[0], "ranks agree": False}
    parts = zip(NAMES, gave[0].split(sizes), shapes, strict=True)
    found = {name: part.reshape(shape) for name, part, shape in parts}
    return {**seen, **found, "ranks agree": all(same(each, gave[0]) for each in gave)}


def _without(seen: Observed, name: str, thin: int, starts: int) -> Observed:
    """Subtract the bytes of the first Qs, which rank 0 may send, from the bytes under `name`."""
    return {**seen, name: [thin if each == thin + starts else each for each in seen[name]]}


TIMES = 24  # steps
LITTLE = 8  # the part left out at the end may have this multiple of the mean gradient's norm


def again(answer: Answer, rng: random.Random) -> Case:
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
            see={"gave": "returned", "handed in": "handed_in"},
        ),
        {"left out": "little", "handed in": [TIMES * 4 * low_rank.thin((20, 12), 2)] * n},
        weight=2,
        read=partial(_unsent, mean),
        hints=POWERSGD,
        given={"emptied": False, "times": TIMES},
    )


def _unsent(mean: Tensor, seen: Observed) -> Observed:
    """Describe in words the part of the gradients that was not sent."""
    from ddpkit.checks.lab07 import low_rank

    thin, first = (4 * f((20, 12), 2) for f in (low_rank.thin, low_rank.start))
    seen = _without(seen, "handed in", TIMES * thin, first)
    total, kept = seen["gave"][0]
    wanted = TIMES * mean.flatten()
    if not hasattr(total, "shape") or total.shape != wanted.shape:
        return {"left out": "all", "kept": kept, "handed in": seen["handed in"]}
    far = float((total - wanted).norm() / mean.norm())
    words = "little" if far <= LITTLE else f"as much as in {far:.0f} steps"
    return {"left out": words, "kept": kept, "handed in": seen["handed in"]}


def warm(answer: Answer, rng: random.Random) -> Case:
    import torch

    from ddpkit.checks.lab07 import buckets, low_rank

    n, seed = 2, rng.randrange(10**6)
    first = low_rank.low_rank((12, 9), 2, seed)
    second = torch.randn(12, 9, generator=low_rank.generator(seed + 1), dtype=first.dtype)
    parts = [low_rank.parts_of(each, n, seed + 2 + i) for i, each in enumerate((first, second))]
    thin, first_q = 2 * 8 * low_rank.thin((12, 9), 2), 8 * low_rank.start((12, 9), 2)
    return Case(
        "another gradient afterwards",
        asked(
            partial(buckets.compressed, answer, 2, forget=True),
            PerRank([[[[step[rank]]] for step in parts] for rank in range(n)]),
            world_size=n,
            see={"gave": "returned", "handed in": "handed_in"},
        ),
        {
            "first": Close(first.flatten()),
            "second": Close(low_rank.warm(first, second).flatten()),
            "handed in": [thin] * n,
        },
        read=lambda seen: {
            "first": seen["gave"][0][0][0],
            "second": seen["gave"][0][1][0],
            "handed in": _without(seen, "handed in", thin, first_q)["handed in"],
        },
        hints=POWERSGD,
        given={"emptied": True},
    )


BUCKETS: list[list[tuple[int, ...]]] = [[(4, 2, 3, 3), (4,)], [(6, 5), (), (1, 7), (5, 1)]]


def shapes(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab07 import buckets, low_rank

    n, seed = 2, rng.randrange(10**6)
    every = [shape for each in BUCKETS for shape in each]
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
    thin = 2 * 8 * sum(low_rank.thin(shape, 2) for shape in every)
    starts = 8 * sum(low_rank.start(shape, 2) for shape in every)
    of_ranks = [[[each[rank] for each in step] for step in parts] for rank in range(n)]
    return Case(
        "2 buckets in turn, 0 to 4 dimensions, float64",
        asked(
            partial(buckets.compressed, answer, 2),
            PerRank(of_ranks),
            world_size=n,
            see={"gave": "returned", "bytes": "handed_in"},
        ),
        {
            "gave": [[[Close(low_rank.flat(each)) for each in step] for step in means]] * n,
            "bytes": [thin] * n,
        },
        read=partial(_without, name="bytes", thin=thin, starts=starts),
        hints=POWERSGD,
        given={"several": True},
    )
