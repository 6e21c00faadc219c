"""A model with all that a broadcast may forget, and what became of it on each rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did

Tensors = dict[str, Any]  # by name, of a model


def model(seed: int, rank: int) -> Any:
    """A rank's own: layers that share a weight, a frozen scale, buffers of three dtypes.

    Every tensor has values of its own on every rank; those of 8 bytes have more digits than a
    float32 can hold.
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


def tensors(net: Any) -> Tensors:
    """Parameters, a shared one once, and buffers."""
    return {name: t.detach() for name, t in (*net.named_parameters(), *net.named_buffers())}


def flat(of: Tensors) -> Any:
    """All values in one float64 vector."""
    import torch

    return torch.cat([tensor.double().flatten() for tensor in of.values()])


def broadcast(answer: Callable[..., Any], net: Any, *src: int) -> tuple[Tensors, bool, bool, bool]:
    """Run on a rank; its tensors afterwards, and whether three things are as before.

    These are the Parameters and the buffers, the same objects in the same memory, and
    the frozen Parameters. `src` is left out where it is the default.
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


def _are_the_very(before: Tensors, after: Tensors) -> bool:
    return before.keys() == after.keys() and all(after[name] is t for name, t in before.items())


def _same_memory(views: Tensors, of: Tensors) -> bool:
    """True if each tensor still has the memory of its former view."""
    return all(views[name].data_ptr() == t.data_ptr() for name, t in of.items())


def moved(did: Did) -> list[int]:
    """Bytes that each rank took part in moving."""
    return [
        did.bytes[rank] + sum(each.bytes for each in did.trace.traffic.collectives(rank).values())
        for rank in did.trace.ranks
    ]


def compared(seen: Observed, sent: Tensors, src: int, nbytes: int) -> Observed:
    """The last rank's values, and what differs from what rank `src` had.

    `unlike`, which is there if anything does, tells of each tensor on which ranks. `nbytes` is the
    least that has to go over the network.
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
