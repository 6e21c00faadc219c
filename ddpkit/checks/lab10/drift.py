"""Lab 10: replicas with different bits, the cost of detecting the difference, and hints."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpkit.exercises.hint import Hint
from ddpkit.exercises.ranks import Did

if TYPE_CHECKING:
    from torch import nn

    from ddpkit.exercises.guard import Answer

Changes = Mapping[int, Mapping[str, Any]]  # rank -> names and values of changed tensors
NUMBERS = 5000  # elements of the largest tensor


class Drift(NamedTuple):
    """One case: the changed elements on some ranks, and the names of the changed tensors."""

    title: str
    ranks: int
    changes: Changes
    names: list[str]


def drawn(rng: random.Random) -> Iterator[Drift]:
    """Yield the cases; the ranks and the elements that have drifted are random."""
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
    zero: dict[str, object] = {"mean": [-0.0, float("nan")]}
    yield Drift("2 ranks, -0.0", 2, {rng.randrange(2): zero}, ["mean"])
    digits: dict[str, object] = {"wide": [1.0, 2.0 + 2**-40]}
    yield Drift("2 ranks, the last digits of float64", 2, {rng.randrange(2): digits}, ["wide"])
    three: Changes = {
        one: {"narrow": [0.5, -3.02]},
        other: {"seen": more},
        3 - one - other: {"large": {rng.randrange(100, NUMBERS - 100): 2.0}},
    }
    yield Drift("3 ranks, three of them", 3, three, ["large", "narrow", "seen"])


def module() -> nn.Module:
    """Return a module with parameters, one of them frozen, and buffers of several dtypes.

    One buffer has no dimension, and one buffer holds NaN.
    """
    import torch

    net = torch.nn.Module()
    net.large = torch.nn.Parameter(torch.linspace(-1, 1, NUMBERS))
    net.frozen = torch.nn.Parameter(torch.tensor([1.0, 2.0, 4.0]), requires_grad=False)
    net.narrow = torch.nn.Parameter(torch.tensor([0.5, -3.0]).bfloat16())
    net.table = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    net.register_buffer("seen", torch.tensor(7), persistent=False)  # not in state_dict()
    net.register_buffer("wide", torch.tensor([1.0, 2.0], dtype=torch.float64))
    net.register_buffer("mean", torch.tensor([0.0, float("nan")]))
    return net


def on_a_rank(answer: Answer, part: str, changed: Mapping[str, object]) -> Any:
    """Run on a rank: return the names that the answer finds in a module with `changed` values."""
    import torch

    net = module()
    with torch.no_grad():
        for name, values in changed.items():
            tensor = getattr(net, name)
            if isinstance(values, Mapping):  # place -> value
                for place, value in values.items():
                    tensor[place] = value
            else:
                tensor.copy_(torch.as_tensor(values, dtype=tensor.dtype))
    whole = torch.nn.Module()
    whole.add_module(part, net)
    return answer(whole)


def cheap(did: Did) -> str:
    """Return "at most 64 bytes a tensor" if no rank sends more; otherwise a text with the bytes."""
    most = max(sum(one.bytes for one in did.trace.of(rank)) for rank in did.trace.ranks)
    tensors = 7
    if min(did.handed_in) == 0:
        return "0 bytes from a rank"
    return "at most 64 bytes a tensor" if most <= 64 * tensors else f"{most} bytes"


def _has(names: Sequence[str], tensor: str) -> bool:
    return any(name.endswith(f".{tensor}") for name in names)


# fmt: off
HINTS = (
    Hint("no list", lambda s: any(not isinstance(names, list) for names in s.names),
         "Return a list of names."),
    Hint("a view", lambda s: s.kind == "bytes of a tensor",
         "A tensor may have no dimension, lie in memory in any order, and be bfloat16. "
         "reshape(-1).view(torch.uint8) gives the bytes of every tensor."),
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "All ranks must take part, each rank for all its tensors."),
    Hint("too much", lambda s: s.wrong("handed in"),
         lambda s: f"A rank sends {s.handed_in} for a yes or no. Send a digest of each tensor."),
    Hint("rank 0 alone", lambda s: s.right in s.names and s.names[0] != s.names[-1]
         and [] in s.names,
         lambda s: f"By rank, you return {s.names}. All ranks must return the same list."),
    Hint("salted", lambda s: all(len(names) > len(s.right) + 1 for names in s.names),
         "You name tensors that are equal. Is your digest the same in each process? Python's "
         "hash() differs by process."),
    Hint("NaN", lambda s: any(_has(names, "mean") for names in s.names)
         and not _has(s.right, "mean"),
         "`mean` has a NaN with the same bits on all ranks, but NaN is not equal to itself. "
         "Compare bytes, not numbers."),
    Hint("-0.0", lambda s: "-0.0" in s.about, "-0.0 == 0.0, but their bits differ."),
    Hint("buffers", lambda s: [name.split(".")[-1] for name in s.right] == ["seen"]
         and not any(_has(each, "seen") for each in s.names),
         "A buffer is part of the model too, even if state_dict() leaves it out. Use "
         "named_buffers()."),
    Hint("frozen", lambda s: "frozen one" in s.about and s.names == [[]] * s.n,
         "The lowest bit of a frozen parameter counts too, on any rank."),
    Hint("sums", lambda s: "changed places" in s.about or "sums" in s.about,
         "The numbers differ, but their sum is the same. A digest must depend on the order of the "
         "numbers."),
    Hint("fewer digits", lambda s: _has(s.right, "wide"),
         "The last digits of a float64 differ, and float32 does not have these digits. Compare the "
         "bytes of each tensor without a conversion."),
    Hint("a part of it", lambda s: _has(s.right, "large")
         and not any(_has(each, "large") for each in s.names),
         "One of the 5,000 numbers of `large` differs, somewhere in the middle. All numbers of a "
         "tensor count."),
    Hint("another list", say=lambda s: f"These tensors have drifted: {s.right}. By rank, you "
    f"return {s.names}."),
)
# fmt: on
