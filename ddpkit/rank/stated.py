"""`stated`: the values of a tensor that a run without values does not compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit import torch_private
from ddpkit.rank.emulation import machine

if TYPE_CHECKING:
    import torch


def stated(tensor: torch.Tensor, values: Any) -> torch.Tensor:
    """Return a tensor; on a rank without values, return the stated values in its place.

    `counts = stated(counts, [20, 12, 40, 56])` lets the shapes of later tensors depend on `counts`.
    The values are a number, nested lists or a tensor, of the tensor's shape or broadcast to it;
    they get its dtype. In all other runs the function returns the tensor itself. It takes no
    emulated time.

    Raises ValueError for values of another shape.
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
