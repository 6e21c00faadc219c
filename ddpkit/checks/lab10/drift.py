"""Lab 10: replicas of which some bits differ, and what it costs to find that out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ddpkit.exercises.ranks import Did

Changes = Mapping[int, Mapping[str, Any]]  # by rank: names of tensors, and what they hold there
NUMBERS = 5000  # in the largest tensor


class Drift(NamedTuple):
    """What ranks have in place of the others' numbers, and the names of it."""

    title: str
    ranks: int
    changes: Changes
    names: list[str]


def drawn(rng: random.Random) -> Iterator[Drift]:
    """Drifts of drawn ranks and numbers."""
    more = rng.randrange(8, 100)
    swapped = rng.choice([[2.0, 1.0, 4.0], [4.0, 2.0, 1.0], [1.0, 4.0, 2.0]])
    one, other = rng.sample(range(3), 2)
    lowest_bit = {"frozen": [1.0, 2.0, 4.0000005]}
    yield Drift("3 ranks, a frozen one on rank 2", 3, {2: lowest_bit}, ["frozen"])
    yield Drift("3 ranks, alike", 3, {}, [])
    yield Drift(
        *("3 ranks, two numbers changed places", 3, {rng.randrange(3): {"frozen": swapped}}),
        ["frozen"],
    )
    table = {"table": [[1, 2], [1, 4], [2, 5]]}
    yield Drift("2 ranks, the sums agree", 2, {rng.randrange(2): table}, ["table"])
    yield Drift("2 ranks, a buffer", 2, {rng.randrange(2): {"seen": more}}, ["seen"])
    zero: dict[str, Any] = {"mean": [-0.0, float("nan")]}
    yield Drift("2 ranks, -0.0", 2, {rng.randrange(2): zero}, ["mean"])
    two: Changes = {one: {"narrow": [0.5, -3.02]}, other: {"seen": more}}
    yield Drift("3 ranks, two of them", 3, two, ["narrow", "seen"])


def module() -> Any:
    """A module with parameters, one frozen, and buffers of several dtypes; two have no number."""
    import torch

    net = torch.nn.Module()
    net.large = torch.nn.Parameter(torch.linspace(-1, 1, NUMBERS))
    net.frozen = torch.nn.Parameter(torch.tensor([1.0, 2.0, 4.0]), requires_grad=False)
    net.narrow = torch.nn.Parameter(torch.tensor([0.5, -3.0]).bfloat16())
    net.table = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    net.register_buffer("seen", torch.tensor(7), persistent=False)  # state_dict() leaves it out
    net.register_buffer("mean", torch.tensor([0.0, float("nan")]))
    return net


def on_a_rank(answer: Callable[..., Any], part: str, changed: Mapping[str, Any]) -> Any:
    """Run on a rank: what the answer says of a module whose part has these tensors otherwise."""
    import torch

    net = module()
    with torch.no_grad():
        for name, values in changed.items():
            getattr(net, name).copy_(torch.as_tensor(values, dtype=getattr(net, name).dtype))
    whole = torch.nn.Module()
    whole.add_module(part, net)
    return answer(whole)


def cheap(did: Did) -> str:
    """How much each rank hands in, in words."""
    most = max(sum(one.bytes for one in did.trace.of(rank)) for rank in did.trace.ranks)
    tensors = 6
    return "at most 64 bytes a tensor" if most <= 64 * tensors else f"{most} bytes"
