"""`train_on_mesh`: the training steps of one rank of a mesh, as a `MeshPlan` divides the model.

The rank follows the schedule 1F1B (`simulate.step.pipeline`) through the blocks of a stage. The
ranks of a slice group compute the same rows with different columns of the matrices. The ranks of a
replica group compute different rows with the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import mse_loss

from ddpkit.mesh.blocks import MeshBlock
from ddpkit.rank.record.marks import span, step
from ddpkit.simulate.mesh.plans import AXES, MeshModel, MeshPlan
from ddpkit.simulate.step.pipeline import one_f_one_b, op_name


def train_on_mesh(
    plan: MeshPlan,
    model: MeshModel,
    steps: int = 1,
    *,
    order: Sequence[str] = AXES,
    lr: float = 1e-3,
) -> list[float]:
    """Train a model for some steps by a plan. Each rank of the plan calls the function.

    Returns the loss of each step. In the last stage, the loss is over the rows of the rank's
    replica; in earlier stages the loss is 0. The losses of all replicas add up to the mean squared
    error of the batch. ``order`` names the dimensions of the mesh, from the ranks furthest apart to
    neighbours; by default "slice" is last. Raises ValueError if the plan does not divide the model,
    or if the run has a different number of ranks.
    """
    training = MeshTraining(plan, model, order=order, lr=lr)
    return [training.step() for _ in range(steps)]


class MeshTraining:
    """A rank's part of the training: blocks, rows, neighbours and optimizer."""

    def __init__(
        self, plan: MeshPlan, model: MeshModel, *, order: Sequence[str] = AXES, lr: float = 1e-3
    ) -> None:
        """Build the rank's part. Raises ValueError in the same cases as `train_on_mesh`."""
        model.check(plan)
        if sorted(order) != sorted(AXES):
            raise ValueError(f"order={order!r}: name each of {', '.join(AXES)} once")
        if plan.ranks != dist.get_world_size():
            raise ValueError(
                f"{plan} needs {plan.ranks} ranks, but the run has {dist.get_world_size()}"
            )
        self.plan, self.model = plan, model
        mesh = init_device_mesh(
            "cpu", tuple(plan.shape[axis] for axis in order), mesh_dim_names=tuple(order)
        )
        replicas, self._line, slices = (mesh.get_group(axis) for axis in AXES)
        self.stage, self._last = self._line.rank(), plan.stages - 1
        many = model.blocks // plan.stages
        self.blocks = [
            MeshBlock(model, number, slices, replicas, shards=plan.shards)
            for number in range(self.stage * many, (self.stage + 1) * many)
        ]
        self._optimizer = torch.optim.AdamW(
            [p for block in self.blocks for p in block.stepped], lr=lr
        )
        self._rows = model.batch // (plan.replicas * plan.micro)
        self._first_row = model.batch // plan.replicas * replicas.rank()

    def _data(self, micro: int, phase: float) -> torch.Tensor:
        first = self._first_row + micro * self._rows
        return waves(range(first, first + self._rows), self.model.width, phase)

    def step(self) -> float:
        """Take a training step, and return the loss as `train_on_mesh` does.

        All ranks begin the step together.
        """
        dist.barrier()
        self._held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._sent: dict[tuple[str, int], Any] = {}
        with step():
            loss = 0.0
            for kind, micro, *_ in one_f_one_b(self.stage, self.plan.stages, self.plan.micro):
                if kind == "F":
                    loss += self._forward(micro)
                else:
                    self._backward(micro)
            for work in self._sent.values():
                work.wait()
            for block in self.blocks:
                block.collect()
            self._optimizer.step()
            for block in self.blocks:
                block.renew()
        return loss

    def _forward(self, micro: int) -> float:
        if self.stage == 0:
            x = self._data(micro, 0.0)
        else:
            x = self._receive(self.stage - 1)
            # The previous stage sent x after it had received an earlier micro-batch's gradient, so
            # the send of this gradient is over.
            self._is_through("B", micro - 1 - self.plan.stages + self.stage)
        x.requires_grad_()
        with span(op_name(("F", micro))):
            y = x
            for block in self.blocks:
                y = block(y)
            if self.stage == self._last:
                y = mse_loss(y, self._data(micro, 1.0), reduction="sum")
                y = y / (self.model.batch * self.model.width)
        self._held[micro] = x, y
        if self.stage == self._last:
            return y.item()
        self._send(y.detach(), ("F", micro), self.stage + 1)
        return 0.0

    def _backward(self, micro: int) -> None:
        x, y = self._held.pop(micro)
        gradient = None
        if self.stage < self._last:
            gradient = self._receive(self.stage + 1)
            self._is_through("F", micro)
        if micro == self.plan.micro - 1:
            for block in self.blocks:
                block.expect_last()
        with span(op_name(("B", micro))):
            y.backward(gradient)  # type: ignore[no-untyped-call]
        if self.stage > 0:
            assert x.grad is not None
            self._send(x.grad, ("B", micro), self.stage - 1)

    def _receive(self, stage: int) -> torch.Tensor:
        x = torch.empty(self._rows, self.model.width)
        dist.recv(x, group=self._line, group_src=stage)
        return x

    def _send(self, x: torch.Tensor, what: tuple[str, int], stage: int) -> None:
        self._sent[what] = dist.isend(x, group=self._line, group_dst=stage)

    def _is_through(self, kind: str, micro: int) -> None:
        """Wait for the send of a tensor that the peer has received, to free the memory."""
        if (work := self._sent.pop((kind, micro), None)) is not None:
            work.wait()


def waves(rows: range, width: int, phase: float) -> torch.Tensor:
    """Return rows of the data set, float32 [rows, width]; each row is a different sine wave."""
    numbers = torch.arange(rows.start + 1, rows.stop + 1)
    return (torch.outer(numbers, torch.arange(1, width + 1)) * 0.7 + phase).sin()
