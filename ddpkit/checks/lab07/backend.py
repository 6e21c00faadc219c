"""Lab 07: a c10d backend that calls an answer, for checks on ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ddpkit.checks.lab07.buckets import CAP_MB, gradients_of
from ddpkit.checks.shared.models import Part

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


def group_of(all_reduce: Answer) -> Any:
    """Return a group of all ranks that runs all-reduces with the function `all_reduce`.

    The default group runs all remaining collectives. The classes are made inside this function,
    because a class with a c10d base cannot be shipped.
    """

    world: Any = dist.group.WORLD
    process_group: Any = dist.ProcessGroup

    class Done(dist.Work):
        def __init__(self, tensors: list[Tensor]) -> None:
            super().__init__()
            self.future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
            self.future.set_result(tensors)

        def wait(self, timeout: object = None) -> bool:
            return True

        def get_future(self) -> torch.futures.Future[list[Tensor]]:
            return self.future

    class Group(process_group):  # type: ignore[misc]
        def allreduce(self, tensors: list[Tensor], options: object) -> dist.Work:
            all_reduce(tensors, options)
            return Done(tensors)

        def broadcast(self, tensors: list[Tensor], options: object) -> Any:
            return world.broadcast(tensors, options)

        def allgather(self, outputs: object, inputs: object, options: object) -> Any:
            return world.allgather(outputs, inputs, options)

    def make(store: dist.Store, rank: int, size: int, timeout: object) -> dist.ProcessGroup:
        return Group(rank, size)

    dist.Backend.register_backend("lab07", make, devices=["cpu"])
    return dist.new_group(backend="lab07")


def summed(answer: Answer, x: Tensor, *, async_op: bool = False) -> Tensor:
    """Return x after an all-reduce of torch.distributed in the answer's group."""
    work = dist.all_reduce(x, group=group_of(answer), async_op=async_op)
    if work is not None:
        work.wait()
    return x


def all_summed(answer: Answer, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors after a direct call of the answer, with the arguments that c10d passes."""
    answer(list(tensors), dist.AllreduceOptions())
    return list(tensors)


def two_columns(answer: Answer, x: Tensor) -> Tensor:
    """Return x after an all-reduce of its first two columns, which are not contiguous."""
    dist.all_reduce(x[:, :2], group=group_of(answer))
    return x


def refused(answer: Answer, x: Tensor, operation: str = "MAX") -> Tensor | str:
    """Ask the answer for an operation that is no sum, which it should refuse.

    Return "NotImplementedError", or "too late" if the answer changed the tensor before it raised
    the error. Return the tensor if no error was raised.
    """
    before = x.clone()
    options: Any = dist.AllreduceOptions()
    options.reduceOp = getattr(dist.ReduceOp, operation)
    try:
        answer([x], options)
    except NotImplementedError:
        return "NotImplementedError" if torch.equal(x, before) else "too late"
    return x


def ddp_on_it(answer: Answer, module: Module, parts: Sequence[Part]) -> list[Tensor]:
    """Return the gradients of torch's DDP after a backward for each part, in the answer's group."""
    group = group_of(answer)
    ddp = DistributedDataParallel(module, bucket_cap_mb=CAP_MB, process_group=group)
    return gradients_of(ddp, parts)
