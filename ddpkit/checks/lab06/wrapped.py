"""Lab 06: the cases of DistributedDataParallel, and the reading of their observations.

The notebook's process draws each rank's model and parts of batches, and ships them to the rank. A
rank gets only its own model and its own parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from ddpkit.checks.lab06 import on_ranks
from ddpkit.checks.lab06.hints import DDP
from ddpkit.checks.lab06.traces import all_reduces, communicated, on_their_way
from ddpkit.checks.shared import alone
from ddpkit.checks.shared.alone import vector
from ddpkit.checks.shared.models import Chosen, Part, batches, linear, model, three_layers
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed
from ddpkit.exercises.ranks import Did, Looks, asked, handed_in, within
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

GAVE: Looks = {"gave": "returned"}


@dataclass(frozen=True)
class Question:
    """One case: a function to run on a number of ranks, and the right observations."""

    about: str
    n: int
    run: Answer  # a function of `on_ranks`
    arguments: Sequence[object]
    expect: Observed
    see: Looks = field(default_factory=lambda: GAVE)
    read: Callable[[Observed], Observed] | None = None
    given: Observed = field(default_factory=dict)
    least: Sequence[int] = ()  # least number of bytes by rank passed to torch.distributed
    most: int = 0  # largest number of bytes by rank passed to torch.distributed
    trivial: bool = False


def questions(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield the cases, with models and batches drawn from `rng`."""
    for ask in (
        *(_start, _late, _whole_batch, _three_steps, _micro_batches, _default_caps),
        *(_two_forwards, _other_order, _unused, _missing),
    ):
        question = ask(rng)
        due = [Between(least, question.most) for least in question.least]
        yield Case(
            question.about,
            asked(
                partial(question.run, answer),
                *question.arguments,
                world_size=question.n,
                see={**question.see, **({"handed in": _handed_in} if due else {})},
            ),
            {**question.expect, **({"handed in": due} if due else {})},
            read=partial(_with_bytes, question.read),
            hints=DDP,
            given={"case": question.about, "n": question.n, **question.given},
            trivial=question.trivial,
        )


def _handed_in(did: Did) -> list[int]:
    """Return, for each rank, the bytes that the answer passes to torch.distributed."""
    return [handed_in(within(did.trace.of(rank), on_ranks.OWN)) for rank in did.trace.ranks]


def _with_bytes(read: Callable[[Observed], Observed] | None, seen: Observed) -> Observed:
    kept = {name: seen[name] for name in ("handed in",) if name in seen}
    return {**(read(seen) if read else seen), **kept}


def _nbytes(module: nn.Module) -> int:
    """Return the bytes of the gradients of all parameters."""
    sizes: list[int] = [p.nbytes for p in module.parameters() if p.requires_grad]
    return sum(sizes)


def _enough(module: nn.Module, steps: int) -> int:
    """Return the most bytes that an answer may send in `steps` steps.

    A right answer sends the parameters and buffers at the start, and in each step the buffers and
    the gradients. The limit is twice the bytes of the start, six times the bytes of the steps (with
    the whole state in the place of the buffers), and 4 kB for the order of the buckets and unused
    parameters.
    """
    state: int = sum(tensor.nbytes for tensor in module.state_dict().values())
    return 2 * (state + 3 * steps * (state + _nbytes(module))) + 4096


def _seed(rng: random.Random) -> int:
    return rng.randrange(10**6)


# Averages


def _start(rng: random.Random) -> Question:
    models = [model(_seed(rng)) for _ in range(3)]
    for rank, each in enumerate(models):
        each[0].requires_grad_(False)
        each[1].running_mean += rank
    begin = [tensor.detach().clone() for tensor in models[0].state_dict().values()]
    return Question(
        *("3 ranks start alike", 3, on_ranks.start, [PerRank(models)]),
        {"rank 0's start": [True] * 3},
        least=[sum(each.nbytes for each in begin), 0, 0],
        most=_enough(models[0], 1),
        read=lambda seen: {"rank 0's start": [same(each, begin) for each in seen["gave"]]},
    )


def _late(rng: random.Random) -> Question:
    net, batch = model(_seed(rng)), batches(_seed(rng), 2)
    mean = vector(alone.mean(alone.gradients_of(net, batch)))
    return Question(
        *("rank 1 is late", 2, on_ranks.late, [net, PerRank(batch)]),
        {"on their way": 4, "ranks agree": True, "gradients": Close(mean)},
        see={"on their way": on_their_way, **GAVE},
        read=_late_gradients,
        given=_averages(net, batch),
    )


def _late_gradients(seen: Observed) -> Observed:
    return {
        "on their way": seen["on their way"],
        "ranks agree": same(*seen["gave"]),
        "gradients": vector(seen["gave"][0]),
    }


def _averages(net: nn.Module, batch: Sequence[Part]) -> Observed:
    """Return rank 0's own gradients and the mean of all ranks' gradients, for the hints."""
    own = alone.gradients_of(net, batch)
    return {"own": vector(own[0]), "mean": vector(alone.mean(own))}


def _whole_batch(rng: random.Random) -> Question:
    models, batch = [linear(_seed(rng)) for _ in range(4)], batches(_seed(rng), 4)
    mean = vector(alone.mean(alone.gradients_of(models[0], batch)))
    return Question(
        *("4 ranks, the whole batch", 4, on_ranks.one_backward, [PerRank(models), PerRank(batch)]),
        {"gradients": Close(mean), "ranks agree": True},
        read=lambda seen: {
            "gradients": vector(seen["gave"][0]),
            "ranks agree": all(same(each, seen["gave"][0]) for each in seen["gave"]),
        },
        given=_averages(models[0], batch),
        least=[_nbytes(models[0])] * 4,
        most=_enough(models[0], 1),
    )


# Comparisons with torch's class


def _three_steps(rng: random.Random) -> Question:
    return _beside_torchs(rng, "3 steps beside torch's", 1)


def _micro_batches(rng: random.Random) -> Question:
    return _beside_torchs(rng, "micro-batches in no_sync", 3)


def _beside_torchs(rng: random.Random, about: str, micro: int) -> Question:
    models = [model(_seed(rng)) for _ in range(2)]
    by_rank = [[batches(_seed(rng), micro) for _ in range(3)] for _ in range(2)]
    right = vector(alone.steps(models[0], by_rank))
    return Question(
        *(about, 2, on_ranks.beside_torchs, [PerRank(models), PerRank(by_rank)]),
        {"as torch's": [True, True], "steps": Close(right), "storages": 4},
        read=partial(_steps, len(right)),
        least=[3 * _nbytes(models[0])] * 2,
        most=_enough(models[0], 3 * micro),
    )


def _steps(numbers: int, seen: Observed) -> Observed:
    """Return the observations of training steps, read from the results of the ranks.

    "as torch's" is, for each rank, True if the answer has torch's results. "steps" has the first
    `numbers` values of rank 0. "storages" is the number of storages of rank 0's gradients.
    """
    mine, _, storages = seen["gave"][0]
    return {
        "as torch's": [same(mine, torchs) for mine, torchs, _ in seen["gave"]],
        "steps": vector(mine)[:numbers],
        "storages": storages,
    }


# Buckets


def _default_caps(rng: random.Random) -> Question:
    wide, narrow = rng.randrange(1024, 1200), rng.randrange(256, 300)
    layers = (nn.Linear(1, wide), nn.Linear(wide, narrow, bias=False), nn.Linear(narrow, 1))
    return Question(
        *("default caps", 2, on_ranks.default_caps, [nn.Sequential(*layers)]),
        {"all-reduces": [4 * (narrow + 1 + wide * narrow), 2 * 4 * wide]},
        see={"all-reduces": lambda did: all_reduces(did.trace)},
    )


def _two_forwards(rng: random.Random) -> Question:
    net, by_step = linear(_seed(rng)), [batches(_seed(rng), 2) for _ in range(2)]
    first, second = (alone.gradients_of(net, of_ranks) for of_ranks in by_step)
    both = vector(alone.mean(first)) + vector(alone.mean(second))
    return Question(
        *("2 forwards, 3 backwards", 2, on_ranks.two_forwards),
        [net, PerRank(list(zip(*by_step, strict=True)))],
        {
            "gradients": [Close(both)] * 2,
            "a third adds": [Close(vector(own)) for own in first],
            "no_sync adds": [Close(vector(own)) for own in second],
        },
        read=lambda seen: {
            "gradients": [vector(both) for both, _, _ in seen["gave"]],
            "a third adds": [vector(third) for _, third, _ in seen["gave"]],
            "no_sync adds": [vector(fourth) for _, _, fourth in seen["gave"]],
        },
        least=[_nbytes(net)] * 2,
        most=_enough(net, 2),
    )


def _other_order(rng: random.Random) -> Question:
    sizes = rng.sample([8, 16, 24, 32, 40], 4)
    use = rng.choice([(2, 0, 3, 1), (1, 3, 0, 2), (1, 0, 3, 2), (2, 3, 1, 0)])
    layers = nn.ModuleList(nn.Linear(1, size, bias=False) for size in sizes)
    return Question(
        *("another order", 2, on_ranks.other_order, [layers, use]),
        {
            "before": [4 * size for size in reversed(sizes)],
            "after": [4 * sizes[i] for i in reversed(use)],
        },
        see={
            "before": lambda did: all_reduces(did.trace.step(0)),
            "after": lambda did: communicated(did.trace.step(2)),
        },
    )


# Unused parameters


def _unused(rng: random.Random) -> Question:
    layers, (x, _) = three_layers(_seed(rng)), batches(_seed(rng), 1)[0]
    shared, sometimes, never = rng.sample(range(3), 3)
    x, use = x[:, :4], [[shared, sometimes], [shared]]
    mean = vector(alone.of_chosen(Chosen(*layers), 2 * x, use))
    return Question(
        *("unused parameters", 2, on_ranks.partly_used, [layers, x, PerRank(use)]),
        {"as torch's": [True, True], "None": [never], "gradients": Close(mean)},
        read=_partly_used,
        least=[2 * sum(_nbytes(layers[i]) for i in used) for used in use],
        most=_enough(layers, 2),
    )


def _partly_used(seen: Observed) -> Observed:
    mine = seen["gave"][0][0]
    return {
        "as torch's": [same(mine, torchs) for mine, torchs in seen["gave"]],
        "None": [i for i in range(3) if mine[2 * i] is None],
        "gradients": vector(mine),
    }


def _missing(rng: random.Random) -> Question:
    left_out = rng.randrange(2)  # never the last layer, because its buckets leave first
    use = [i for i in range(3) if i != left_out]
    return Question(
        *("a gradient is missing", 2, on_ranks.said_of_missing, [three_layers(_seed(rng)), use]),
        # A layer has two buckets. No bucket starts before the buckets of later layers.
        {"said": f"names layers.{left_out}", "buckets sent": 2 * (2 - left_out)},
        see={**GAVE, "buckets sent": lambda did: len(all_reduces(did.trace))},
        read=partial(_said, f"layers.{left_out}"),
        trivial=True,
    )


def _said(layer: str, seen: Observed) -> Observed:
    said = seen["gave"][0]
    names = f"names {layer}" if f"{layer}.weight" in said else ", ".join(said) or "nothing"
    return {"said": names, "buckets sent": seen["buckets sent"]}
