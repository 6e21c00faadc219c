"""Lab 07: torch's DistributedDataParallel, opened up and extended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ddpkit.checks.lab07 import power, visits
from ddpkit.checks.lab07.hints import FP16, GOSSIP, PAIRS, POWERSGD
from ddpkit.checks.lab07.hints_more import BARRIER, RING, UNEVEN
from ddpkit.checks.lab07.in_ddp import by_the_hook, in_ddp
from ddpkit.checks.lab07.low_rank import start, thin
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


# fp16_hook


@exercise("fp16_hook", lab="07", points=2)
def fp16_hook(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a hook that averages float16 copies of the gradients, and does not wait."""
    import torch

    from ddpkit.checks.lab07.buckets import averaged

    exact = [(n, None, dtype, _odd(rng, n, n)) for n, dtype in ((2, "float32"), (4, "float64"))]
    large = [[64.0 * rng.randrange(600, 750) for _ in range(3)] for _ in range(2)]
    # All ranks use the same signs: sums that cancel would lose more digits than `Close` allows.
    signs = [rng.choice((-1, 1)) for _ in range(4)]
    any_number = [[sign * rng.uniform(0.75, 1) for sign in signs] for _ in range(3)]
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
        wanted: Close | Tensor = Close(mean, 3) if values is any_number else mean
        yield Case(
            title(n, dtype),
            asked(
                partial(averaged, answer, members),
                PerRank(flats),
                world_size=n,
                see={"gave": "returned", "bytes": by_the_hook, "collectives": "collectives"},
            ),
            {
                "gave": [wanted if rank in ranks else "no member" for rank in range(n)],
                "bytes": [2 * len(mean) * (rank in ranks) for rank in range(n)],
                "collectives": ["all_reduce"],
            },
            hints=FP16,
            given={
                "n": n,
                "mean": mean,
                "own": flats[ranks[0]],
                "size": len(ranks),
                "members": members,
            },
        )
    yield in_ddp("in_ddp", answer, rng, (None,), digits=2, hints=FP16, most=partial(_numbers, 2))


def _numbers(nbytes: int, shape: tuple[int, ...]) -> int:
    """Return the bytes of a gradient of this shape, with `nbytes` for each number."""
    return nbytes * prod(shape)


def _odd(rng: random.Random, n: int, ranks: int) -> list[list[float]]:
    """Draw whole numbers for each rank; their sum needs all 11 significant bits of float16.

    The sum is over `ranks` ranks.
    """
    rows = [[float(rng.randrange(1040 // ranks, 2000 // ranks) & ~1) for _ in range(4)]
            for _ in range(n)]  # fmt: skip
    rows[0] = [each + 1 for each in rows[0]]
    return rows


# powersgd_hook


@exercise("powersgd_hook", lab="07", points=4)
def powersgd_hook(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check PowerSGD: two thin matrices for a gradient, error feedback, and a reused Q."""
    for case in (power.low_mean, power.warm, power.again, power.shapes):
        yield case(answer, rng)
    yield in_ddp(
        *("low_rank_in_ddp", answer, rng, (2,)),
        digits=3,
        hints=POWERSGD,
        most=lambda shape: 4 * thin(shape, 2),
        once=lambda shape: 4 * start(shape, 2),
    )


# pair_groups


@exercise("pair_groups", lab="07", points=1)
def pair_groups(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check groups of two ranks; the numbers of the two ranks differ in one binary digit."""
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
    """Check a hook that averages the gradients of two ranks, with a new partner in each step."""
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
        whole = drawn[0].nbytes
        yield Case(
            title(n, f"{steps} steps" if steps > 1 else "1 step", "2 buckets each"),
            asked(
                partial(gossiped, answer),
                PerRank([[list(step) for step in of_rank] for of_rank in drawn]),
                world_size=n,
                see={"gave": "returned", "to all": _to_all, "bytes of the hook": by_the_hook},
            ),
            {
                "gave": means,
                "to all": 0,
                # the bytes may go twice: to the partner, and back
                "bytes of the hook": [Between(whole, 2 * whole)] * n,
            },
            hints=GOSSIP,
            given={"n": n, "drawn": drawn, "steps": steps},
            stop_if="wrong",
        )
    yield in_ddp(
        *("gossip_in_ddp", answer, rng, ()),
        digits=4,
        hints=GOSSIP,
        most=partial(_numbers, 8),  # float32 twice: to the partner, and back
        least=0.5,
    )


def _to_all(did: Did) -> int:
    """Return the number of collectives that the group of all ranks runs."""
    return sum(one.is_collective and not one.group for one in did.trace.of(0))


# train_uneven

# In a step, a rank may pass this multiple of the gradients' bytes to torch.distributed: enough for
# the gradients twice, and a few counts.
MOST_OF_A_STEP = 3


@exercise("train_uneven", lab="07", points=3)
def train_uneven(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check training in which some ranks have fewer batches than others."""
    from ddpkit.checks.lab07 import uneven
    from ddpkit.checks.shared.models import batches, linear

    for lengths in ([3, 1, 2], [0, 2], [2, 2], [0, 0, 0], [4]):
        net, n = linear(rng.randrange(10**6)), len(lengths)
        frozen = ", a frozen parameter" * (lengths == [2, 2])
        if frozen:
            net[0].bias.requires_grad_(False)
        whole = sum(p.nbytes for p in net.parameters() if p.requires_grad)
        parts = [batches(rng.randrange(10**6), length) for length in lengths]
        counts = uneven.counts_of(parts)
        yield Case(
            f"{title(n)}, {', '.join(map(str, lengths))} batches{frozen}",
            asked(
                partial(uneven.trained, answer),
                net,
                PerRank(parts),
                lengths == [2, 2],
                world_size=n,
                see={"gave": "returned", "handed in": "handed_in"},
            ),
            {
                "counts": [counts] * n,
                "parameters": Close(uneven.alone(net, parts)),
                "ranks agree": True,
                "handed in": [
                    Between((n > 1) * own * whole, MOST_OF_A_STEP * (len(counts) + 1) * whole)
                    for own in lengths
                ],
            },
            read=_trained_read,
            hints=UNEVEN,
            given={
                "right_counts": counts,
                "lengths": lengths,
                "is_list": lengths == [2, 2],
                "frozen": bool(frozen),
                "mistaken": {each: uneven.alone(net, parts, each) for each in uneven.MISTAKES},
            },
            trivial=n == 1 or not any(lengths),
            stop_if="raised",
        )


def _trained_read(seen: Observed) -> Observed:
    counts, parameters = zip(*seen["gave"], strict=True)
    return {
        "counts": list(counts),
        "parameters": parameters[0],
        "ranks agree": all(same(each, parameters[0]) for each in parameters),
        "handed in": seen["handed in"],
    }


# monitored_barrier


@exercise("monitored_barrier", lab="07", points=2, returns=False)
def monitored_barrier(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a barrier that raises an error after its timeout, with the numbers of missing ranks."""
    from ddpkit.checks.lab07.barriers import alone_of
    from ddpkit.checks.lab07.barriers import visits as visited

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
            partial(visited, answer, plans, timeout),
            {"ends": visits.ends(plans, timeout), "in time": True},
            read=partial(visits.read, timeout),
            hints=BARRIER,
            given={"plans": plans, "timeout": timeout},
            trivial=about == "3 ranks come",
        )
    # torch's store takes a timeout below 1 ms as 0 ms, and then waits forever
    n, timeout = rng.randrange(2, 8), rng.randrange(1000, 1100) / 1e3
    yield Case(
        f"a store of torch's, 1 of {n} ranks",
        partial(alone_of, answer, name, n, timeout),
        {"ends": [[list(range(1, n))]]},
        read=visits.in_order,
        hints=BARRIER,
        given={"plans": [[(name, 0.0)], *[[]] * (n - 1)], "timeout": timeout},
    )


# ring_all_reduce


@exercise("ring_all_reduce", lab="07", points=2, returns=False)
def ring_all_reduce(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the all-reduce of a c10d backend: each tensor becomes the sum, by a ring."""
    import torch

    from ddpkit.checks.lab07 import backend

    def drawn(n: int, length: int) -> list[Tensor]:
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
        ("3 ranks, float32[2]", backend.summed, short, [sums[1]] * 3, [Between(8, 16)] * 3),
        ("2 ranks, two tensors", backend.all_summed, lists, [sums[2:]] * 2, [48] * 2),
        ("2 ranks, two columns of three", backend.two_columns, wide, mixed, [32] * 2),
    ):
        # "bytes" are equal on all ranks of a right answer; "sent" may differ by rank
        count = "sent" if run is backend.summed and given is short else "bytes"
        yield Case(
            about,
            asked(
                partial(run, answer),
                PerRank(given),
                world_size=len(given),
                see={"gave": "returned", count: "bytes", "collectives": "collectives"},
            ),
            {"gave": wanted, "collectives": [], count: nbytes},
            hints=RING,
            given={"inputs": given, "several": run is backend.all_summed, "n": len(given)},
        )
    for about, operation in (("maximum", "MAX"), ("product", "PRODUCT")):
        yield Case(
            f"2 ranks, the {about}",
            asked(
                partial(backend.refused, answer, operation=operation),
                PerRank(drawn(2, 4)),
                world_size=2,
                see={"gave": "returned"},
            ),
            {"gave": ["NotImplementedError"] * 2},
            hints=RING,
            given={"other_than_sum": about},
            trivial=True,
        )
    yield _on_the_ring(answer, rng)


def _on_the_ring(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab07 import backend
    from ddpkit.checks.shared import alone
    from ddpkit.checks.shared.models import batches, linear

    net = linear(rng.randrange(10**6))
    parts = [batches(rng.randrange(10**6), 2) for _ in range(3)]
    steps = list(zip(*parts, strict=True))
    means = [alone.vector(alone.mean(alone.gradients_of(net, each))) for each in steps]
    whole = sum(p.nbytes for p in net.parameters())
    return Case(
        "torch's DDP on 3 ranks",
        asked(
            partial(backend.ddp_on_it, answer),
            net,
            PerRank(parts),
            world_size=3,
            see={"gradients": "returned", "sent": "bytes"},
        ),
        {
            "gradients": [[Close(mean) for mean in means]] * 3,
            "ranks agree": True,
            "sent": [Between(len(steps) * whole, 2 * len(steps) * whole)] * 3,
        },
        read=lambda seen: {
            **seen,
            "ranks agree": all(same(each, seen["gradients"][0]) for each in seen["gradients"]),
        },
        hints=RING,
    )
