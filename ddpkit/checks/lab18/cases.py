"""Lab 18: memory of activations, and low precision between ranks: the exercises."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab18 import hints, hints_on_ranks, low_hints, plans
from ddpkit.cluster.torchrun.job import active
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, asked, each_returned, looked, timed, title, together
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


@exercise("kept", lab="18", points=2)
def kept(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the bytes that autograd keeps for a module's backward, each storage once."""
    from ddpkit.checks.lab18 import keeping

    for about, module, inputs in keeping.drawn(rng):
        found = keeping.models(module, inputs)
        yield Case(
            about,
            observe=partial(keeping.asked, answer, module, inputs),
            expect={"bytes": found["right"], "forward alone": True},
            hints=hints.KEPT,
            given=found,
            trivial=not found["right"],
        )


@exercise("memory_plan", lab="18", points=3, returns=False)
def memory_plan(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choice of the blocks to recompute: the fastest step within a memory limit."""
    blocks, held, _ = plans.question(rng, held=2)
    low = plans.level_of((True,) * len(blocks), (blocks, held, 0))
    high = plans.level_of((False,) * len(blocks), (blocks, held, 0))
    for about, posed in (
        ("10 drawn questions", plans.telling(rng)),
        ("six equal blocks", [plans.equal(rng, 4), plans.equal(rng, 1)]),
        ("a limit that is reached", [plans.exact(rng)]),
        ("keeping the longest block first is not best", [plans.knapsack(rng)]),
        ("no plan fits", [(blocks, held, low - rng.randrange(1, 4))]),
        ("all blocks fit", [(blocks, held, high + rng.randrange(40))]),
    ):
        least = [plans.time_of(plans.best(each), each) for each in posed]
        yield Case(
            about,
            observe=partial(plans.asks, answer, posed),
            expect={
                "plans": "one answer a block, or None",
                "ms": least,
                "within the limit": True,
            },
            read=partial(plans.judged, posed),
            hints=hints.PLAN,
            given={"questions": posed, "telling": len(posed) > 2, "about": about},
            weight=3 if len(posed) > 2 else 1,
            trivial=about in ("no plan fits", "all blocks fit"),
        )


# On ranks

MACHINE = "1 TFLOP/s, 1000 TB/s"


@exercise("Again", lab="18", points=4, returns=False)
def again(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a function that is computed again in the backward, with the same random numbers."""
    import torch

    from ddpkit.checks.lab18.on_ranks import in_a_row, twin

    for about, n, dtype, times in (
        ("dropout", 4, torch.float32, 0),
        ("three inputs and an all-reduce", 2, torch.float64, 2),
    ):
        rows, width = rng.randrange(9, 40), rng.randrange(3, 9)
        drawn = torch.Generator().manual_seed(rng.randrange(10**9))

        def numbers(*shape: int, dtype: Any = dtype, drawn: Any = drawn) -> Any:
            return torch.randn(*shape, generator=drawn, dtype=dtype)

        xs = [numbers(rows, width)] * n
        seeds = [rng.randrange(10**6)] * n
        more: list[Any] = []
        if times:
            more = [numbers(width), torch.randperm(rows, generator=drawn)[: rows - 2]]
        else:
            seeds = [seed + rank for rank, seed in enumerate(seeds)]
        gradient = numbers(rows - 2 if times else rows, width)
        states = [torch.Generator().manual_seed(seed).get_state() for seed in seeds]
        due = [twin(state, x, gradient, more, times) for state, x in zip(states, xs, strict=True)]
        yield Case(
            title(n, about),
            asked(
                *(partial(in_a_row, answer), PerRank(states), xs[0], gradient, more, times),
                world_size=n,
                see={name: each_returned(name) for name in due[0]},
            ),
            {
                "output": [Close(each["output"]) for each in due],
                "of inputs": [[Close(g) for g in each["of inputs"]] for each in due],
                "of parameters": [
                    [[Close(g) for g in block] for block in each["of parameters"]] for each in due
                ],
                "next number": [Close(each["next number"]) for each in due],
                "calls": [[2, 2, 2]] * n,
            },
            hints=hints_on_ranks.AGAIN,
            given={"n": n, "rows": len(gradient), "times": times},
            weight=2,
        )
    if not active():  # ranks under torchrun have no modelled memory
        yield _lean(answer, rng)


def _lean(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab18.on_ranks import lean

    rows = rng.randrange(250, 700)
    ns = 6 * 4 * 4 * rows * 32 * 256 / 1e3
    inputs = 6 * rows * 32 * 4
    parameters = 6 * 4 * (2 * 32 * 256 + 32 + 256)
    lesson = 766_472 + 4_224 * rows  # peak of an answer that keeps only the inputs, on ctx
    return Case(
        title(1, "memory"),
        asked(
            *(partial(lean, answer), rows),
            world_size=1,
            see={"calls": each_returned("calls"), "peak": most, "programs": "programs"},
            machine=MACHINE,
        ),
        {
            "calls": [[2] * 6],
            "peak": Between(parameters + inputs, round(1.06 * lesson)),
            "ns": Between(round(0.999 * ns), round(1.02 * ns)),
        },
        read=in_ns,
        hints=hints_on_ranks.LEAN,
        given={"n": 1},
    )


def in_ns(observed: Observed) -> Observed:
    """Replace "programs" (recorded operations) by "ns", the time computed from the programs."""
    seen = dict(timed(observed, MACHINE))
    return {**seen, "ns": round(1e6 * seen.pop("ms"))}


def most(did: Did) -> int:
    """Return the largest number of bytes that any rank held."""
    return max(did.peak)


def sums(did: Did) -> int:
    """Return the number of collectives that rank 0 calls."""
    return sum(one.is_collective for one in did.trace.of(0))


@exercise("worth_keeping", lab="18", points=2)
def worth_keeping(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a policy that keeps only the outputs of products and of sums over ranks."""
    import torch

    from ddpkit.checks.lab18.on_ranks import by_policy
    from ddpkit.checks.lab18.policies import PRODUCTS, each_operation

    for about, n, count, bias in (
        ("six blocks without a bias", 1, 6, False),
        ("an all-reduce", 2, 1, True),
    ):
        rows, width = rng.randrange(300, 700), 32
        drawn = torch.Generator().manual_seed(rng.randrange(10**9))
        x, gradient = (torch.randn(rows, width, generator=drawn) for _ in range(2))
        due = by_policy(None, x, gradient, count, bias)
        flops = count * rows * 2 * (8 + 1) * width**2
        peak = (
            241_664 + 7_680 * rows if count == 6 else 4 * 10**6
        )  # a single block has one peak for all policies
        yield Case(
            title(n, about),
            asked(
                *(partial(by_policy, answer), x, gradient, count, bias),
                world_size=n,
                see={
                    "output": each_returned("output"),
                    "gradient": each_returned("gradient"),
                    "all-reduces": sums,
                    **({} if active() else {"peak": most, "programs": "programs"}),
                },
                machine=None if active() else MACHINE,
            ),
            {
                "output": [Close(due["output"])] * n,
                "gradient": [Close(due["gradient"])] * n,
                "all-reduces": 1 if bias else 0,
                **({} if active() else {
                    "peak": Between(0, round(1.04 * peak)),
                    "ns": Between(round(2.999 * flops / 1e3), round(3.03 * flops / 1e3)),
                }),
            },
            read=None if active() else in_ns,
            hints=hints_on_ranks.POLICY,
            given={"sums": 1 if bias else 0, "flops": flops},
        )  # fmt: skip
    yield Case(
        "each operation by itself",
        partial(each_operation, answer),
        {"kept": list(PRODUCTS)},
        hints=hints_on_ranks.OPERATIONS,
        trivial=True,
    )


# Low precision


@exercise("mean_by_halves", lab="18", points=3)
def mean_by_halves(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a mean over the ranks that sends bfloat16 and adds in float32."""
    from ddpkit.checks.lab18.low import RoundedLines
    from ddpkit.checks.lab18.on_ranks import mean

    asks = [
        [RoundedLines(rng, 4, 4 * rng.randrange(60, 300)), RoundedLines(rng, 4, 3)],
        [RoundedLines(rng, 3, 3 * rng.randrange(60, 300) + 2)],
        [RoundedLines(rng, 2, 2 * rng.randrange(20, 300) + 1)],
        [RoundedLines(rng, 1, rng.randrange(20, 300))],
    ]
    for several in asks:
        calls = [[(flat,) for flat in lines.flats] for lines in several]
        for lines, told in zip(several, together(partial(mean, answer), calls), strict=True):
            n, length = lines.n, lines.length
            least = 2 * 2 * (n - 1) * length
            yield Case(
                title(n, f"{length} numbers"),
                looked(told, {
                    "mean": each_returned("mean"),
                    "left alone": each_returned("kept"),
                    "bytes": all_sent,
                    "collectives": "collectives",
                }),
                {
                    "mean": [lines.right()] * n,
                    "left alone": [True] * n,
                    "bytes": Between(least, 2 * 2 * (n - 1) * n * -(-length // n)),
                },
                hints=low_hints.MEAN,
                given={**lines.models(), "right": lines.right()},
                trivial=n == 1 or length == 3,
            )  # fmt: skip


def all_sent(did: Did) -> int:
    """Return the bytes that all ranks send; a collective counts as its messages in a ring."""
    from ddpkit.checks.shared.functions import FORWARD
    from ddpkit.checks.shared.travel import sent

    return sum(sent(did.trace, rank, FORWARD) for rank in did.trace.ranks)


@exercise("LossScale", lab="18", points=3, returns=False)
def loss_scale(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a scaler of the loss: in each step, either all ranks or no ranks make the step."""
    from ddpkit.checks.lab18.low import ScaledSteps
    from ddpkit.checks.lab18.on_ranks import scaled

    inf, nan = float("inf"), float("nan")
    for about, n, bad, large, missing in (
        ("ten steps", 4, {1: {2: inf}, 5: {1: nan}, 6: {0: -inf, 3: inf}}, 3, -1),
        ("a rank without gradients", 3, {rng.randrange(3, 7): {0: nan}}, -1, 1),
        ("alone", 1, {rng.randrange(2, 7): {0: inf}}, -1, -1),
    ):
        asks = ScaledSteps(rng, n, bad)
        if large >= 0:
            asks.large(large, 0)
        if missing >= 0:
            asks.missing(missing)
        right = asks.right()
        yield Case(
            title(n, about),
            asked(
                *(partial(scaled, answer), PerRank(asks.gradients), PerRank(asks.start)),
                (asks.scale, asks.patience),
                world_size=n,
                see={
                    "stepped": each_returned("stepped"),
                    "scales": each_returned("scales"),
                    "parameters": each_returned("parameters"),
                    "collectives": number_of_sums,
                    "largest": largest,
                },
            ),
            {
                "stepped": right["stepped"],
                "scales": right["scales"],
                "parameters": [
                    [[Close(p) for p in each] for each in own] for own in right["parameters"]
                ],
                **({"collectives": [asks.steps] * n, "largest": Between(1, 8)} if n > 1 else {}),
            },
            hints=low_hints.SCALE,
            given={"asks": asks, "n": n, "large_step": large},
            trivial=n == 1,
        )


def number_of_sums(did: Did) -> list[int]:
    """Return, for each rank, the number of its collectives and sent messages."""
    spans = [did.trace.of(rank) for rank in did.trace.ranks]
    return [sum(one.is_collective or one.is_send for one in each) for each in spans]


def largest(did: Did) -> int:
    """Return the bytes of the largest collective or message of all ranks."""
    return max((one.bytes for one in did.trace.spans if one.is_comm), default=0)


@exercise("gather_fp8", lab="18", points=3)
def gather_fp8(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a gather in fp8: one byte for each element, and one scale for each shard."""
    import torch

    from ddpkit.checks.lab18.low import Shards
    from ddpkit.checks.lab18.on_ranks import gathered

    drawn = torch.Generator().manual_seed(rng.randrange(10**9))
    a, b, c = rng.randrange(5, 40), 2 * rng.randrange(3, 20) + 1, rng.randrange(2, 20)

    def x(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=drawn)

    tiny = [torch.cat([torch.tensor([448.0, -500.0, 30_000.0]), 0.6 * x(a)]), x(b, 2)]
    for about, shards in (
        (
            "three sizes",
            [[x(a, 3) * 10**r, x(b) * 10.0 ** (r - 14), 100 * x(c, 4)] for r in range(4)],
        ),
        ("a shard of zeros", [[x(b, 2), (r != 1) * x(3), x(c)] for r in range(3)]),
        ("numbers beyond 448", [tiny, [3 * each for each in tiny]]),
        ("alone", [[x(a, 2), x(b)]]),
    ):
        asks, n = Shards(shards), len(shards)
        numbers, scales = sum(each.numel() for each in shards[0]), 4 * len(shards[0])
        yield Case(
            title(n, about),
            asked(
                *(partial(gathered, answer), PerRank(shards)),
                world_size=n,
                see={
                    "whole": each_returned("whole"),
                    "left alone": each_returned("kept"),
                    "bytes": all_sent,
                    "collectives": number_of_sums,
                },
            ),
            {
                "off": [[0] * len(shards[0])] * n,
                "left alone": [True] * n,
                "bytes": Between(n * (n - 1) * numbers, n * (n - 1) * (numbers + scales)),
                **({"collectives": [1] * n} if n > 1 else {}),
            },
            read=asks.read,
            hints=low_hints.FP8,
            given={"n": n, "asks": asks, "numbers": numbers},
            trivial=n == 1,
        )
