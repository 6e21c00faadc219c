"""`stated`: gives values to a tensor that a run without values has not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpkit import torch_private
from ddpkit.rank.emulation import machine

if TYPE_CHECKING:
    import torch


def stated(tensor: torch.Tensor, values: object) -> torch.Tensor:
    """Return `tensor`; on a rank without values, return a tensor of the stated `values` instead.

    `counts = stated(counts, [20, 12, 40, 56])` makes `counts` usable for the shapes of later
    tensors. `values` is a number, nested lists or a tensor. `values` must have the shape of
    `tensor`, or be broadcast to that shape, and gets the dtype of `tensor`. In a run with values,
    `stated` returns `tensor` itself. The call takes no emulated time.

    Raises ValueError if `values` cannot be broadcast to the shape of `tensor`.
    """
    current = machine.current()
    if current is None or current.uncomputed is None:
        return tensor
    import torch

    with current.clocks.mine.stopped(), torch_private.no_modes():
        given = torch.as_tensor(values, dtype=tensor.dtype)
        try:
            return given.expand(tensor.shape).clone()
        except RuntimeError:
            raise ValueError(
                f"stated: the tensor has the shape {list(tensor.shape)}, and the values have "
                f"{list(given.shape)}"
            ) from None
