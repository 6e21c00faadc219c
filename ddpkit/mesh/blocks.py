"""`MeshBlock`: a slice of a block x + down(relu(up(x))), with the replicas' collectives."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import linear

from ddpkit.asked import not_for
from ddpkit.simulate.mesh.plans import MeshModel

# Newer versions of torch renamed both collectives.
reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

# exercises about slices, which this module must not answer
SLICES = ("Copied", "Summed", "SlicedMLP", "SlicedAttention")


class EnterSlices(torch.autograd.Function):
    """The entry into slices: forward returns x, backward sums the gradients of all slices."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, slices: dist.ProcessGroup) -> torch.Tensor:
        ctx.slices = slices
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return added_up(gradient, ctx.slices), None


class LeaveSlices(torch.autograd.Function):
    """The exit from slices: forward sums the x of all slices, backward returns the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, slices: dist.ProcessGroup) -> torch.Tensor:
        return added_up(x, slices)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def added_up(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return the sum of the x of all ranks in a group, as a new tensor."""
    not_for(*SLICES)
    x = x.clone()
    if group.size() > 1:
        dist.all_reduce(x, group=group)
    return x


class MeshBlock(torch.nn.Module):
    """This rank's slice of a block. Input and output [rows, width] are the same on all slices.

    A flat tensor holds both matrices, and a second flat tensor holds both gradients. Both tensors
    are padded, so that each replica gets an equal part. After `expect_last`, the backward pass
    posts the reduction of the gradients as soon as both gradients are complete. `collect` waits for
    the reduction.
    """

    def __init__(
        self,
        model: MeshModel,
        number: int,
        slices: dist.ProcessGroup,
        replicas: dist.ProcessGroup,
        *,
        shards: bool,
    ) -> None:
        """Make this rank's slice of a block, in the rank's two groups; ``number`` is the seed."""
        not_for(*SLICES)
        super().__init__()
        self._slices, self._replicas, self._shards = slices, replicas, shards
        mine = slice(*(model.hidden // slices.size() * (slices.rank() + i) for i in (0, 1)))
        drawn = torch.Generator().manual_seed(number)
        up = torch.randn(model.hidden, model.width, generator=drawn)[mine] / model.width**0.5
        down = torch.randn(model.width, model.hidden, generator=drawn)[:, mine]
        cut = -(-(up.numel() + down.numel()) // replicas.size())
        self.flat = torch.zeros(cut * replicas.size())
        self.flat_gradient = torch.zeros_like(self.flat)
        self.up = self._in_flat(up, 0)
        self.down = self._in_flat(down / model.hidden**0.5, up.numel())
        self.shard = torch.nn.Parameter(self.flat[cut * replicas.rank() :][:cut])
        self._missing, self._work = 0, None
        for p in (self.up, self.down):
            p.register_post_accumulate_grad_hook(self._one_is_ready)  # type: ignore[no-untyped-call]

    def _in_flat(self, weight: torch.Tensor, at: int) -> torch.nn.Parameter:
        p, gradient = (
            whole[at : at + weight.numel()].view(weight.shape)
            for whole in (self.flat, self.flat_gradient)
        )
        p.copy_(weight)
        p = torch.nn.Parameter(p)
        p.grad = gradient
        return p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output, with the shape of x."""
        enter: Any = EnterSlices.apply
        leave: Any = LeaveSlices.apply
        inner = linear(enter(x, self._slices), self.up).relu()
        y: torch.Tensor = x + leave(linear(inner, self.down), self._slices)
        return y

    @property
    def stepped(self) -> list[torch.nn.Parameter]:
        """The parameters that the rank's optimizer updates."""
        return [self.shard] if self._shards else [self.up, self.down]

    def expect_last(self) -> None:
        """Announce the last backward pass of a step: the pass posts the reduction."""
        self._missing = 2

    def _one_is_ready(self, _: torch.Tensor) -> None:
        self._missing -= 1
        if self._missing == 0:
            if self._shards:
                self.shard.grad = torch.empty_like(self.shard)
                self._work = reduce_scatter(
                    self.shard.grad, self.flat_gradient, group=self._replicas, async_op=True
                )
            elif self._replicas.size() > 1:
                self._work = dist.all_reduce(
                    self.flat_gradient, group=self._replicas, async_op=True
                )

    def collect(self) -> None:
        """Wait until the gradients of all replicas are summed."""
        if self._work is not None:
            self._work.wait()
            self._work = None

    def renew(self) -> None:
        """Begin a new step: gather the parameters from all replicas, if sharded; zero gradients."""
        if self._shards:
            self.shard.grad = None
            all_gather(self.flat, self.shard.detach(), group=self._replicas)
        self.flat_gradient.zero_()
