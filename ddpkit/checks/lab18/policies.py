"""Lab 18: a check of a checkpoint policy, which is called for each operation in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.guard import Answer

PRODUCTS = ("aten.addmm.default", "aten.bmm.default", "aten.mm.default")
OTHERS = (
    "aten.add.Tensor",
    "aten.bernoulli_.float",
    "aten.gelu.default",
    "aten.lgamma.default",
    "aten.mul.Tensor",
    "aten.native_dropout.default",
    "aten.native_layer_norm.default",
    "aten.sum.dim_IntList",
    "aten.t.default",
    "aten.view.default",
)


def each_operation(answer: Answer) -> Observed:
    """Return the sorted names of the operations for which the policy keeps the output."""
    given = [torch.zeros(2, 2) for _ in range(3)]
    now = SelectiveCheckpointContext(is_recompute=False)
    return {"kept": [name for name in sorted(PRODUCTS + OTHERS) if _kept(answer, now, name, given)]}


def _kept(answer: Answer, now: object, name: str, given: Sequence[object]) -> bool:
    room, packet, overload = name.split(".")
    op = getattr(getattr(getattr(torch.ops, room), packet), overload)
    said = answer(now, op, *given)
    saves = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE
    return said in saves if isinstance(said, CheckpointPolicy) else bool(said)
