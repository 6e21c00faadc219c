"""Lab 13: memory, sent bytes and learning of ranks, compared with one process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab13 import hints
from ddpkit.checks.lab13.piece_hints import PIECES
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, exercise
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank
from ddpkit.text import count

if TYPE_CHECKING:
    from ddpkit.checks.lab13.blocks import Learning
    from ddpkit.exercises.guard import Answer

MACHINE, LINK = "1 TFLOP/s", "unlimited"
ANY = 10**9  # bytes: with -ANY as the lower limit, any small number is allowed


# state_bytes


@exercise("state_bytes", lab="13", points=1)
def state_bytes(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check each rank's bytes of parameters, gradients and optimizer, for each stage of ZeRO."""
    for stage, over in enumerate((1, 1, 0, 1)):  # `over`: parameters % ranks
        parameters, ranks = rng.randrange(10**6, 10**9), rng.choice((3, 7, 48, 96))
        parameters += (-parameters + over) % ranks
        yield Case(
            f"{parameters:,} parameters, {ranks} ranks, stage {stage}",
            partial(_bytes, answer, parameters, ranks, stage),
            {"bytes": _held(parameters, -(-parameters // ranks), stage)},
            hints=hints.BYTES,
            given={
                "n": ranks,
                "stage": stage,
                "parameters": parameters,
                "held": partial(_held, parameters),
            },
        )


def _bytes(answer: Answer, parameters: int, ranks: int, stage: int) -> dict[str, object]:
    return {"bytes": answer(parameters, ranks, stage)}


def _held(parameters: int, largest: Any, stage: int, split: Sequence[int] = (12, 2, 2)) -> object:
    """Return a rank's bytes if the first `stage` of three parts are sharded.

    `largest` is the number of parameters in the largest shard. `split` has the bytes of the three
    parts for each parameter.
    """
    return sum(
        each * (largest if place < stage else parameters) for place, each in enumerate(split)
    )


# ShardedOptimizer


@exercise("ShardedOptimizer", lab="13", points=4)
def sharded_optimizer(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an optimizer with 1/n of its state on each rank: the same steps as one process."""
    from ddpkit.checks.lab13.training import EVEN, TINY_FIRST, Stepping

    seed = partial(rng.randrange, 10**6)
    decay = {"lr": 0.1, "weight_decay": 0.1}
    rows = (
        (4, "AdamW, one parameter of 360 numbers", Stepping(seed(), "AdamW", decay)),
        (2, "AdamW, frozen and unused", Stepping(seed(), "AdamW", decay, frozen=(0,), unused=(3,))),
        (3, "Adam, lr changes", Stepping(seed(), "Adam", {"lr": 0.1}, rates=(0.1, 0.3, 0.03, 0.2))),
        (
            *(2, "SGD, two groups, lr changes"),
            Stepping(
                *(seed(), "SGD", {"lr": 0.1, "momentum": 0.9}),
                shapes=TINY_FIRST,
                groups=(1, {"lr": 0.5}),
                rates=(0.1, 0.3, 0.03, 0.2),
            ),
        ),
        (1, "AdamW", Stepping(seed(), "AdamW", decay, shapes=EVEN)),
    )
    for n, about, drawn in rows:
        yield _training(answer, n, about, drawn)


def _training(answer: Answer, n: int, about: str, drawn: Any) -> Case:
    from ddpkit.checks.lab13 import seen
    from ddpkit.checks.lab13.on_ranks import stepped
    from ddpkit.checks.lab13.training import LOSS

    return Case(
        title(n, about),
        asked(
            *(partial(stepped, answer), drawn.asks()),
            world_size=n,
            see={
                "parameters": seen.field("parameters"),
                "same on all ranks": _same_on_all,
                "loss": seen.field("loss"),
                "calls of the closure": seen.field("calls"),
                "bytes of state": seen.field("state"),
                "state of all": _state_of_all,
                "kept at rest": seen.kept_at_rest,
                "sent": seen.sent,
                "sent by all": seen.sent_by_all,
                "gradients cleared": _all_cleared,
                "gradients let go": _all_let_go,
            },
            machine=MACHINE,
            link=LINK,
        ),
        {
            "parameters": [Close(drawn.learned())] * n,
            "same on all ranks": True,
            "loss": [LOSS] * n,
            "calls of the closure": [1] * n,
            "bytes of state": [Between(0, drawn.state(n))] * n,
            "state of all": Between(4 * drawn.kept * drawn.used, n * drawn.state(n)),
            "kept at rest": [Between(-ANY, drawn.at_rest(n))] * n,
            "sent": [Between(0, drawn.sent(n))] * n,
            "sent by all": Between(drawn.received(n), n * drawn.sent(n)),
            "gradients cleared": True,
            "gradients let go": True,
        },
        hints=hints.OPTIMIZER,
        given={"n": n, **drawn.models()},
        trivial=n <= 2,  # on 2 ranks, two copies of a chunk have as many bytes as the state
    )


def _same_on_all(did: Did) -> bool:
    first, *others = (each["parameters"] for each in did.returned)
    return all(same(first, other) for other in others)


def _all_cleared(did: Did) -> bool:
    return all(each["cleared"] for each in did.returned)


def _all_let_go(did: Did) -> bool:
    return all(each["let go"] for each in did.returned)


def _state_of_all(did: Did) -> int:
    return sum(each["state"] for each in did.returned)


# reduce_to_owner


@exercise("reduce_to_owner", lab="13", points=1)
def reduce_to_owner(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a reduce-scatter: the mean of a rank's own chunk, for half an all-reduce's bytes."""
    import torch

    from ddpkit.checks.lab13 import seen
    from ddpkit.checks.lab13.on_ranks import reduced

    for n, length, dtype in (
        (4, 12, "float32"),
        (2, 6, "float64"),
        (3, 9, "float32"),
        (1, 5, "float32"),
    ):
        generator = torch.Generator().manual_seed(rng.randrange(10**6))
        finest = 2 ** (36 if dtype == "float64" else 13)  # a shorter dtype would round
        shape = n, length
        drawn = torch.randint(-9 * finest, 9 * finest, shape, generator=generator)
        flats = [*(drawn.to(getattr(torch, dtype)) / finest * n)]
        total, whole = torch.stack(flats).sum(0), flats[0].nbytes
        others = whole * (n - 1) // n  # bytes of the remaining ranks' chunks
        yield Case(
            title(n, f"{dtype}[{length}]"),
            asked(
                *(partial(reduced, answer), PerRank(flats)),
                world_size=n,
                see={
                    "chunk": seen.field("chunk"),
                    "left alone": _all_kept,
                    "memory": seen.field("memory"),
                    "sent": seen.sent,
                },
            ),
            {
                "chunk": list((total / n).chunk(n)),
                "left alone": True,
                "memory": [Between(whole // n, whole // n)] * n,
                "sent": [Between(others, others)] * n,
            },
            hints=hints.TO_OWNER,
            given={"n": n, "total": total, "whole_mean": total / n, "own": flats},
            trivial=n == 1,
        )


def _all_kept(did: Did) -> bool:
    return all(each["kept"] for each in did.returned)


# FullyShard


@exercise("FullyShard", lab="13", points=6)
def fully_shard(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check blocks that are in memory only while they compute, and learn as in one process."""
    from ddpkit.checks.lab13.blocks import Learning

    rows = (
        (4, ("plain", "tied", "biased", "plain"), "", 1, ""),
        (2, ("plain", "unused"), "two backwards a step", 2, ""),
        (3, ("frozen", "plain", "tied"), "the first one frozen", 1, ""),
        (2, ("plain", "plain"), "in bfloat16", 1, "bfloat16"),
        (1, ("plain", "plain"), "", 1, ""),
    )
    for n, kinds, about, backwards, dtype in rows:
        drawn = Learning(rng.randrange(10**6), n, kinds, backwards)
        names = title(n, f"{len(kinds)} blocks", *filter(None, [about]))
        yield _learning(answer, names, drawn, dtype)


def _learning(answer: Answer, about: str, drawn: Learning, dtype: str) -> Case:
    import torch

    from ddpkit.checks.lab13 import seen
    from ddpkit.checks.lab13.on_ranks import learned

    n, nbytes, digits = drawn.n, 2 if dtype else 4, 1 if dtype else 3
    right = drawn.shards()
    look = drawn.backwards == 1
    blocks = {
        name: Between(-len(drawn.kinds), most)
        for name, most in {"rest": 0, "forward": 1, "between": 0, "backward": 1}.items()
    }
    return Case(
        about,
        asked(
            *(partial(learned, answer), drawn.states, drawn.kinds, PerRank(list(drawn.inputs))),
            getattr(torch, dtype) if dtype else None,
            world_size=n,
            see={
                "gradients": seen.field("gradients"),
                "output": seen.field("output"),
                "directions": seen.field("directions"),
                "sent": seen.sent,
                "operations": seen.operations,
                "gathers waited for at once": seen.field("waited for"),
                **(
                    {
                        "blocks in memory": partial(
                            seen.blocks_in_memory, drawn.lines, nbytes, drawn.frozen
                        )
                    }
                    if look
                    else {}
                ),
            },
            machine=MACHINE,
            link=LINK,
        ),
        {
            "gradients": [[Close(each, digits) for each in mine] for mine in right],
            "output": [Close(drawn.output, digits)] * n,
            "directions": [[]] * n,
            "gathers waited for at once": [0] * n,
            "sent": [Between(least, drawn.sent(nbytes)) for least in drawn.needed(nbytes)],
            "operations": Between(0, drawn.operations()),
            **({"blocks in memory": blocks} if look else {}),
        },
        hints=hints.SHARDED,
        given={
            "n": n,
            "right": right,
            "own": drawn.own_shards(),
            "dtype": dtype,
            "backwards": drawn.backwards,
            "unused": "unused" in drawn.kinds,
            "untrained": drawn.untrained,
        },
        trivial=n == 1,
    )


# prefetch


@exercise("prefetch", lab="13", points=2, returns=False)
def prefetch(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that the next unit is gathered while a unit computes, forward and backward."""
    from ddpkit.checks.lab13.fetching import right, swept

    for units in (rng.randrange(4, 8), rng.randrange(20, 1500), rng.randrange(2, 4), 1):
        yield Case(
            count(units, "unit"),
            partial(swept, answer, units),
            right(units),
            hints=hints.AHEAD,
            trivial=units < 8,  # a table could hold these cases
        )


# pieces


@exercise("pieces", lab="13", points=2)
def pieces(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the pieces of old shards that each new rank reads, without superfluous elements."""
    rows = (  # lengths drawn from hundreds, so that no table of seen answers holds them
        (4 * rng.randrange(2, 900) + 2, 4, 3),  # torch's chunks are uneven here
        (12 * rng.randrange(1, 900), 3, 4),
        (2, rng.randrange(4, 9), rng.randrange(3, 8)),  # some ranks have an empty shard
        (2 * rng.randrange(2, 900) + 1, 2, 2),
        (rng.randrange(5, 900), 1, 4),
        (0, 3, 2),  # the line of a block without trainable parameters
        (rng.randrange(30, 300), rng.randrange(10, 13), 2),  # each new rank reads many pieces
    )
    for length, old, new in rows:
        yield Case(
            f"{length} numbers, {count(old, 'rank')}, then {new}",
            partial(_read, answer, length, old, new),
            {"reads": [_wanted(length, old, new, rank) for rank in range(new)]},
            hints=PIECES,
            given={"length": length, "old": old, "new": new},
            trivial=length < old,
        )


def _read(answer: Answer, length: int, old: int, new: int) -> dict[str, object]:
    return {"reads": [_listed(answer(length, old, new, k)) for k in range(new)]}


def _listed(found: Any) -> object:
    """Return the pieces as a list of tuples; for an iterator, return the name of its type."""
    return type(found).__name__ if isinstance(found, Iterator) else [tuple(each) for each in found]


def _wanted(length: int, old: int, new: int, rank: int) -> list[tuple[int, int, int]]:
    """Return the right pieces of a new rank, computed from the place of each of its elements."""
    size, wide = -(-length // old), -(-length // new)
    found: list[tuple[int, int, int]] = []
    for number in range(length)[rank * wide : (rank + 1) * wide]:
        owner, place = divmod(number, size)
        if found and found[-1][0] == owner:
            found[-1] = (owner, found[-1][1], place + 1)
        else:
            found.append((owner, place, place + 1))
    return found
