"""A model with every kind of tensor that a broadcast may forget, and its state on each rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from ddpkit.exercises.guard import Answer

Tensors: TypeAlias = "dict[str, Tensor]"  # name -> tensor of a model


def model(seed: int, rank: int) -> Module:
    """Return a rank's model: a shared weight, a frozen scale, and buffers of three dtypes.

    Every tensor has different values on every rank. The tensors with 8 bytes per element hold more
    digits than a float32 can hold.
    """
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(3, 4, bias=False))
    net[2].weight = net[0].weight
    net.scale = nn.Parameter(torch.zeros(2, dtype=torch.float64), requires_grad=False)
    net.register_buffer("mask", torch.zeros(5, dtype=torch.bool), persistent=False)
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors(net).values():
        base = torch.randint(1, 90, tensor.shape, generator=generator)
        base += 2**30 * (tensor.element_size() == 8)
        tensor.copy_(base % 2 == rank % 2 if tensor.dtype == torch.bool else base + 100 * rank)
    return net


def tensors(net: Module) -> Tensors:
    """Return the model's parameters and buffers by name; a shared parameter is included once."""
    return {name: t.detach() for name, t in (*net.named_parameters(), *net.named_buffers())}


def flat(of: Tensors) -> Tensor:
    """Return all values in one float64 vector."""
    import torch

    return torch.cat([tensor.double().flatten() for tensor in of.values()])


def broadcast(answer: Answer, net: Module, *src: int) -> tuple[Tensors, bool, bool, bool]:
    """Run on a rank; return the model's tensors after the broadcast, and three booleans.

    1. True if the Parameters are still the same objects in the same memory.
    2. True if the buffers are still the same objects in the same memory.
    3. True if each Parameter still has the same `requires_grad`.

    Without `src`, the answer's own default applies.
    """
    views = tensors(net)
    before, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    trains = {name: p.requires_grad for name, p in before.items()}
    answer(net, *src)
    after = dict(net.named_parameters())
    in_place = _are_the_very(before, after) and _same_memory(views, before)
    buffers_in_place = _are_the_very(buffers, dict(net.named_buffers()))
    buffers_in_place = buffers_in_place and _same_memory(views, buffers)
    still = {name: p.requires_grad for name, p in after.items()} == trains
    return tensors(net), in_place, buffers_in_place, still


def _are_the_very(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> bool:
    return before.keys() == after.keys() and all(after[name] is t for name, t in before.items())


def _same_memory(views: Tensors, of: Mapping[str, Tensor]) -> bool:
    """True if each tensor is still in the memory of the view that was made of it earlier."""
    return all(views[name].data_ptr() == t.data_ptr() for name, t in of.items())


def moved(did: Did) -> list[int]:
    """Return, for each rank, the bytes that it sent or passed to collectives."""
    return [
        did.bytes[rank] + sum(each.bytes for each in did.trace.traffic.collectives(rank).values())
        for rank in did.trace.ranks
    ]


def compared(seen: Observed, sent: Tensors, src: int, nbytes: int) -> Observed:
    """Compare the models of all ranks with the tensors that rank `src` sent.

    "model" has the last rank's values. The observation "like rank `src`" lists the tensors that
    differ from rank `src`. "unlike" maps the name of each such tensor to the ranks on which it
    differs, and is left out if no tensor differs. `nbytes` is the least number of bytes that have
    to go over the network.
    """
    models, in_place, buffers, frozen = zip(*seen["replicas"], strict=True)
    unlike = {
        name: ranks
        for name, tensor in sent.items()
        if (ranks := [r for r, each in enumerate(models) if not same(each.get(name), tensor)])
    }
    return {
        "model": flat(models[-1]),
        f"like rank {src}": list(unlike) or "all",
        "in place": all(in_place),
        "buffers in place": all(buffers),
        "frozen": "as before" if all(frozen) else "changed",
        "sent": "all" if max(seen["moved"]) >= nbytes else f"{max(seen['moved'])} bytes",
        **({"unlike": unlike} if unlike else {}),
    }
