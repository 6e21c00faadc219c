"""The mark of a tensor with values that were not computed.

The mark is an attribute of the tensor's storage, so all views of the storage have the mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# An operation is computed if all its tensors together have at most this number of elements. The
# number is larger if all tensors hold integers: indices, counters, metadata.
SMALL, INTEGERS = 1 << 14, 1 << 20
MARK = "_ddpkit_not_computed"


def most_computed(*dtypes: torch.dtype) -> int:
    """Return the largest number of elements for which tensors of these dtypes are computed."""
    others = any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)
    return SMALL if others else INTEGERS


def mark(tensor: torch.Tensor) -> None:
    """Mark the values of a dense tensor as not computed."""
    if _is_dense(tensor):
        setattr(tensor.untyped_storage(), MARK, True)


def is_marked(tensor: Any) -> bool:
    """True if the values of a tensor were not computed. A sparse tensor has no mark."""
    return hasattr(tensor, "layout") and _is_dense(tensor) and has_mark(tensor.untyped_storage())


def is_large(tensor: torch.Tensor) -> bool:
    """True for a large tensor that was not computed. Its memory was never written."""
    return tensor.numel() > most_computed(tensor.dtype) and is_marked(tensor)


def on_meta(tensor: torch.Tensor) -> Any:
    """Return a tensor of the same shape, strides and dtype on torch's meta device."""
    import torch

    shape, strides, dtype = tensor.shape, tensor.stride(), tensor.dtype
    new = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return new.requires_grad_(tensor.requires_grad)


def has_mark(storage: torch.UntypedStorage) -> bool:
    """True if a storage holds values that were not computed."""
    return hasattr(storage, MARK)


def zero_if_untouched(tensor: torch.Tensor) -> None:
    """Fill a small view of a large storage with zeros, if the storage's values were not computed.

    The storage's memory was never written, so it holds arbitrary bytes.
    """
    most = most_computed(tensor.dtype)
    if tensor.numel() > most or not is_marked(tensor):
        return
    if tensor.untyped_storage().nbytes() > most * tensor.element_size():
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        once = [1 if stride == 0 else length for length, stride in pairs]
        tensor.as_strided(once, tensor.stride()).zero_()


def _is_dense(tensor: torch.Tensor) -> bool:
    import torch

    return tensor.layout == torch.strided and not tensor.is_meta
