"""Lab 10: replicas of which some bits differ, and what it costs to find that out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ddpkit.exercises.ranks import Did

Changes = Mapping[int, Mapping[str, Any]]  # by rank: names of tensors, and what they hold there
NUMBERS = 5000  # in the largest tensor


def module() -> Any:
    """A module with parameters, one frozen, and buffers of several dtypes; two have no number."""
    import torch

    net = torch.nn.Module()
    net.large = torch.nn.Parameter(torch.linspace(-1, 1, NUMBERS))
    net.frozen = torch.nn.Parameter(torch.tensor([1.0, 2.0, 4.0]), requires_grad=False)
    net.narrow = torch.nn.Parameter(torch.tensor([0.5, -3.0]).bfloat16())
    net.table = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    net.register_buffer("seen", torch.tensor(7))
    net.register_buffer("mean", torch.tensor([0.0, float("nan")]), persistent=False)
    return net


def on_a_rank(answer: Callable[..., Any], changed: Mapping[str, Any]) -> Any:
    """Run on a rank: what the answer says of the module in which these tensors are others."""
    import torch

    net = module()
    with torch.no_grad():
        for name, values in changed.items():
            getattr(net, name).copy_(torch.as_tensor(values, dtype=getattr(net, name).dtype))
    return answer(net)


def cheap(did: Did) -> str:
    """How much each rank hands in, in words."""
    most = max(sum(one.bytes for one in did.trace.of(rank)) for rank in did.trace.ranks)
    tensors = 6
    return "at most 64 bytes a tensor" if most <= 64 * tensors else f"{most} bytes"
