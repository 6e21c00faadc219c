"""`same`: compares a model's values across all ranks, at any place in a program."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ddpkit import torch_private
from ddpkit.rank.emulation import machine

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


def same(
    model: torch.nn.Module | Iterable[torch.Tensor],
    *,
    buffers: bool = True,
    group: dist.ProcessGroup | None = None,
) -> bool:
    """Return True if a model is equal on all ranks of a group, bit by bit.

    ```python
    assert ddpkit.same(model)
    ```
    If the model differs, the first rank of the group prints the tensors that differ: "0.weight
    differs between ranks 0 and 1". The function is a collective: every rank of the group must call
    it.

    model    a module, or tensors of any shape, such as `model.parameters()`
    buffers  False to ignore the module's buffers. Even in DDP, the buffers of a batch norm differ
             between ranks from one forward to the next
    group    a process group; None is the default group

    Without an initialized process group, and on ranks without values (`values=False`), the function
    returns True. Raises TypeError if `model` is neither a module nor a collection of tensors.
    """
    import torch.distributed as dist

    named = _named(model, buffers=buffers)
    current = machine.current()
    if not dist.is_initialized() or (current is not None and current.uncomputed is not None):
        return True
    from ddpkit.rank.record.replicas import fingerprint

    with (
        current.clocks.mine.stopped() if current else nullcontext(),
        torch_private.no_modes(),
    ):
        mine = {name: (tuple(each.shape), fingerprint(each)) for name, each in named.items()}
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    names = dict.fromkeys(name for each in everyone for name in each)
    wrong = [name for name in names if len({each.get(name) for each in everyone}) > 1]
    if wrong and dist.get_rank(group) == 0:
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        print("\n".join(_words(name, everyone, members) for name in wrong))
    return not wrong


def _named(
    model: torch.nn.Module | Iterable[torch.Tensor], *, buffers: bool
) -> dict[str, torch.Tensor]:
    import torch

    if isinstance(model, torch.nn.Module):
        held = dict(model.named_buffers()) if buffers else {}
        return {**dict(model.named_parameters()), **held}
    tensors = [model] if isinstance(model, torch.Tensor) else list(model)
    if not all(isinstance(each, torch.Tensor) for each in tensors):
        raise TypeError("same() takes a module, or tensors, as in same(model.parameters())")
    return {f"tensor {number}": each for number, each in enumerate(tensors)}


def _words(name: str, everyone: list[dict[str, object]], members: list[int]) -> str:
    """Return a sentence such as "0.weight differs between ranks 0 and 1"; "0.weight" is `name`."""
    first = everyone[0].get(name)
    other = next(rank for rank, each in enumerate(everyone) if each.get(name) != first)
    return f"{name} differs between ranks {members[0]} and {members[other]}"
