"""`nn.SyncBatchNorm` for a CPU, because torch has its kernels only for GPUs.

torch's own function makes the calls, an all_gather of means and variances in the forward and an
all_reduce in the backward. This module replaces only the kernels, by operations that torch has for
a CPU.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
_forward = nn.SyncBatchNorm.forward


def put_in_place() -> None:
    """Make `nn.SyncBatchNorm` train on a CPU, in this process, until the process ends."""
    kind: Any = nn.SyncBatchNorm
    kind.forward = forward
    home: Any = torch
    home.batch_norm_stats = stats
    home.batch_norm_gather_stats_with_counts = gather_stats
    home.batch_norm_elemt = normalized
    home.batch_norm_backward_reduce = backward_sums
    home.batch_norm_backward_elemt = backward


def forward(norm: nn.SyncBatchNorm, given: Tensor) -> Tensor:
    """Run the forward as torch's method does for a tensor on a GPU."""
    group = norm.process_group or dist.group.WORLD
    if not norm.training or not dist.is_initialized() or group.size() == 1:  # type: ignore[union-attr]
        return _forward(norm, given)
    momentum, mean, var = norm.momentum, norm.running_mean, norm.running_var
    if norm.track_running_stats and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if momentum is None:
            momentum = 1.0 / float(norm.num_batches_tracked)
    if not norm.track_running_stats:
        mean = var = None
    function: Any = sys.modules[f"{nn.modules.__name__}._functions"]
    made: Tensor = function.SyncBatchNorm.apply(
        *(given, norm.weight, norm.bias, mean, var),
        *(norm.eps, momentum or 0.0, group, group.size()),  # type: ignore[union-attr]
    )
    return made


def _all_but_channels(given: Tensor) -> list[int]:
    return [dim for dim in range(given.dim()) if dim != 1]


def _by_channel(values: Tensor, given: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (given.dim() - 2))


def stats(given: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the mean and 1 / standard deviation of each channel, over this rank's batch."""
    var, mean = torch.var_mean(given.float(), _all_but_channels(given), correction=0)
    return mean, torch.rsqrt(var + eps)


def gather_stats(
    given: Tensor,
    means: Tensor,
    inverses: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return each channel's mean and 1 / standard deviation over all ranks.

    Update the running averages.
    """
    counts = counts.view(-1, 1)
    number = counts.sum()
    mean = (means * counts).sum(0) / number
    squares = inverses.pow(-2) - eps + means.square()
    var = (squares * counts).sum(0) / number - mean.square()
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((var * (number / (number - 1))).to(running_var.dtype), momentum)
    return mean, torch.rsqrt(var + eps)


def normalized(
    given: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    eps: float,
) -> Tensor:
    """Return the normalized tensor, scaled by the weight and shifted by the bias."""
    var = inverse.pow(-2) - eps
    return F.batch_norm(given, mean, var, weight, bias, training=False, eps=eps)


def backward_sums(
    grad: Tensor, given: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, *wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return two sums over this rank's elements, and the gradients of weight and bias.

    The sums are the sum of the gradients, and the sum of the gradients times the centred inputs.
    """
    dims = _all_but_channels(grad)
    total = grad.float().sum(dims)
    product = (grad * (given - _by_channel(mean, given))).float().sum(dims)
    return total, product, product * inverse, total


def backward(
    grad: Tensor,
    given: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    total: Tensor,
    product: Tensor,
    counts: Tensor,
) -> Tensor:
    """Return the gradient of the input, from the sums over all ranks."""
    number = counts.sum()
    scale = inverse if weight is None else inverse * weight
    slope = _by_channel(product * inverse.square() / number, given)
    centred = grad - _by_channel(total / number, given)
    change = centred - (given - _by_channel(mean, given)) * slope
    return (change * _by_channel(scale, given)).to(grad.dtype)


class without_sync_batch_norm:  # a block
    """A block in which DDP finds no SyncBatchNorm, because DDP refuses a SyncBatchNorm on a CPU."""

    def __enter__(self) -> None:
        self._kind = nn.modules.SyncBatchNorm
        nn.modules.SyncBatchNorm = _Nothing  # type: ignore[misc, assignment]

    def __exit__(self, *_: object) -> None:
        nn.modules.SyncBatchNorm = self._kind  # type: ignore[misc]


class _Nothing:
    pass
