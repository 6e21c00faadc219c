"""A model with all that a broadcast may forget, and what became of it on each rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import call

Answer = Callable[..., Any]


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
    with torch.no_grad():
        for tensor in tensors(net).values():
            base = torch.randint(1, 90, tensor.shape, generator=generator)
            base += 2**30 * (tensor.element_size() == 8)
            tensor.copy_(base % 2 == rank % 2 if tensor.dtype == torch.bool else base + 100 * rank)
    return net


def tensors(net: Any) -> dict[str, Any]:
    """Parameters and buffers by name; a shared one once."""
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def values(seed: int, rank: int) -> Any:
    """All values of a rank's own model in one float64 vector."""
    return _flat({name: t.detach() for name, t in tensors(model(seed, rank)).items()})


def _flat(by_name: dict[str, Any]) -> Any:
    import torch

    return torch.cat([t.double().flatten() for t in by_name.values()])


def observe(answer: Answer, world_size: int, src: int, seed: int) -> Observed:
    did = call(partial(_broadcast, answer), src, seed, world_size=world_size)
    models, kept, trains = zip(*did.returned, strict=True)
    wanted = {name: t.detach() for name, t in tensors(model(seed, src)).items()}
    return {
        "model": _flat(models[-1]),
        f"like rank {src}": _different(models, wanted, src),
        "in place": all(kept),
        "frozen": "as before" if all(trains) else "changed",
    }


def _broadcast(answer: Answer, src: int, seed: int) -> tuple[dict[str, Any], bool, bool]:
    """On a rank: its tensors afterwards, whether they are the same ones, and what still trains."""
    import torch.distributed as dist

    net = model(seed, dist.get_rank())
    before = dict(net.named_parameters())
    trains = {name: p.requires_grad for name, p in before.items()}
    answer(net, src)
    after = dict(net.named_parameters())
    kept = before.keys() == after.keys() and all(after[name] is p for name, p in before.items())
    still = {name: p.requires_grad for name, p in after.items()} == trains
    return {name: t.detach().clone() for name, t in tensors(net).items()}, kept, still


def _different(models: tuple[dict[str, Any], ...], wanted: dict[str, Any], src: int) -> str:
    """ "all", or the names that are not alike everywhere."""
    import torch

    def unlike(of: dict[str, Any]) -> list[str]:
        return [n for n, t in wanted.items() if n not in of or not torch.equal(of[n], t)]

    if changed := unlike(models[src]):
        return f"rank {src} itself has changed: {', '.join(changed)}"
    names = {name for each in models for name in unlike(each)}
    return f"not {', '.join(name for name in wanted if name in names)}" if names else "all"
