"""Lab 06: functions on each rank that compare an answer's class with torch's class."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddpkit.checks.shared.alone import Gradients
from ddpkit.checks.shared.models import CAP_MB, Chosen, Part, loss_of
from ddpkit.exercises.raised import named
from ddpkit.rank.record.marks import span

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

OWN = "the answer's own"  # name of a span: the answer's own work, without torch's class

torchs = partial(DistributedDataParallel, gradient_as_bucket_view=True)


# average, rebuilt_buckets, no_sync


def started(average: Answer, flat: Any) -> Any:
    """Return the buffer of a bucket with two gradients, after the answer has averaged it.

    Each rank calls the answer only when the call on the previous rank has returned. So an answer
    that waits for the all-reduce never returns.
    """
    rank, gradients = dist.get_rank(), list(flat.split(flat.numel() // 2))
    parameters = [torch.zeros_like(gradient) for gradient in gradients]
    bucket = SimpleNamespace(
        buffer=lambda: flat,
        gradients=lambda: gradients,
        parameters=lambda: parameters,
        index=lambda: 0,
        is_last=lambda: True,
    )
    if rank:
        dist.recv(torch.zeros(1), src=rank - 1)
    work = average(bucket)
    if rank < dist.get_world_size() - 1:
        dist.send(torch.zeros(1), dst=rank + 1)
    work.wait()
    return flat


def nbytes_of(place: int) -> int:
    """Return the bytes of the parameter at this place among the parameters of `rebuilt`."""
    return 512 * (place % 8 + 1)


def rebuilt(
    rebuilt_buckets: Answer, order: list[int], *caps_mb: float | None
) -> list[list[int | str]]:
    """Return the parameters of each rebuilt bucket."""
    parameters = [nn.Parameter(torch.zeros(nbytes_of(i) // 4)) for i in range(len(order))]
    number = {id(p): i for i, p in enumerate(parameters)}
    buckets = rebuilt_buckets(parameters, order, *caps_mb)
    return [[number.get(id(p), "no parameter") for p in bucket] for bucket in buckets]


def accumulated(no_sync: Answer, values: Sequence[float]) -> Any:
    """Return the accumulated gradient after one backward for each of `values`.

    All backwards except the last are inside no_sync.
    """
    ddp = torchs(nn.Linear(2, 1, bias=False))
    *inside, last = (torch.full((1, 2), value) for value in values)
    with no_sync(ddp):
        for x in inside:
            ddp(x).sum().backward()
    ddp(last).sum().backward()
    return ddp.module.weight.grad[0].tolist()


# DistributedDataParallel


class TorchsOwn(RuntimeError):
    """The error raised if the answer is torch's class, or contains torch's class."""


def wrap(answer: Answer, module: nn.Module, **options: object) -> Any:
    """Return the module wrapped by the student's class.

    Raises TorchsOwn if the student's class makes an object of torch's class.
    """

    def refuse(*_: object, **__: object) -> None:
        raise TorchsOwn("the answer calls torch's DistributedDataParallel")

    with mock.patch.object(DistributedDataParallel, "__init__", refuse):
        return answer(module, **options)


def gradients(ddp: nn.Module) -> Gradients:
    return [None if p.grad is None else p.grad.clone() for p in ddp.parameters()]


def start(answer: Answer, mine: nn.Module) -> list[Tensor]:
    """Return a rank's parameters and buffers right after the answer has wrapped the model."""
    with torch.no_grad(), span(OWN):
        wrapped = wrap(answer, mine, bucket_cap_mb=CAP_MB, broadcast_buffers=False)
    return [tensor.detach().clone() for tensor in wrapped.module.state_dict().values()]


def one_backward(answer: Answer, mine: nn.Module, part: Part) -> Gradients:
    """Return the gradients after one backward; all ranks begin with rank 0's parameters."""
    with span(OWN):
        ddp = wrap(answer, mine)
        loss_of(ddp, part).backward()
    return gradients(ddp)


def two_forwards(
    answer: Answer, mine: nn.Module, parts: Sequence[Part]
) -> tuple[Sequence[Tensor | None], ...]:
    """Return the gradients after two backwards, and the gradients that two later backwards add.

    The third backward has no forward of its own. The fourth backward is inside `no_sync`, after a
    forward with an unused result.
    """
    with span(OWN):
        ddp = wrap(answer, mine, bucket_cap_mb=CAP_MB)
        losses = [loss_of(ddp, part) for part in parts]
        for loss in losses:
            loss.backward(retain_graph=True)
    found = [gradients(ddp)]
    losses[0].backward()
    found.append(gradients(ddp))
    loss_of(ddp, parts[0])
    with ddp.no_sync():
        loss_of(ddp, parts[1]).backward()
    found.append(gradients(ddp))
    both, third, fourth = found
    return both, _between(both, third), _between(third, fourth)


def _between(before: list[Any], now: list[Any]) -> list[Tensor]:
    return [new - old for old, new in zip(before, now, strict=True)]


def _steps(ddp: Any, steps: Sequence[Sequence[Part]]) -> tuple[Gradients, int]:
    """Return the gradients of each step, the final parameters and buffers, and a count of storages.

    The count is the number of storages that hold the gradients. All micro-batches of a step except
    the last are inside `no_sync`. With several micro-batches, the buffers are left out.
    """
    found: Gradients = []
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for *inside, last in steps:
        optimizer.zero_grad()
        for part in inside:
            with ddp.no_sync():
                loss_of(ddp, part).backward()
        loss_of(ddp, last).backward()
        found += gradients(ddp)
        optimizer.step()
    trained = [p for p in ddp.parameters() if p.requires_grad]
    storages = len({p.grad.untyped_storage().data_ptr() for p in trained})
    found += (p.detach() for p in ddp.parameters())
    # torch's class shares rank 0's buffers before a forward if the previous forward was outside
    # no_sync. The lesson's class shares the buffers before each forward that is itself outside
    # no_sync. So after a no_sync, the two classes have different buffers on rank 1.
    if not any(inside for *inside, _ in steps):
        found += ddp.buffers()
    return found, storages


def beside_torchs(
    answer: Answer, mine: nn.Module, steps: Sequence[Sequence[Part]]
) -> tuple[Gradients, Gradients, int]:
    """Return the results of these steps with the answer's class, and with torch's class.

    The third value is the number of storages that hold the answer's gradients; see `_steps`.
    """
    theirs = deepcopy(mine)
    with span(OWN):
        found, storages = _steps(wrap(answer, mine, bucket_cap_mb=CAP_MB), steps)
    return found, _steps(torchs(theirs, bucket_cap_mb=CAP_MB), steps)[0], storages


def late(answer: Answer, mine: nn.Module, part: Part) -> Gradients:
    """Return the gradients after a backward on two ranks; rank 1 starts its backward later.

    Rank 1 begins its backward when rank 0 has computed all its gradients. An answer that waits for
    an all-reduce inside a hook waits forever, because rank 1 starts its all-reduces later.
    """
    rank, token = dist.get_rank(), torch.zeros(1)
    x, y = part
    gate: Any = x.requires_grad_().clone()  # the backward of clone comes after those of all layers
    if rank == 0:
        gate.register_hook(lambda _: dist.send(token, dst=1))
    ddp = wrap(answer, mine, bucket_cap_mb=CAP_MB, broadcast_buffers=False)
    loss = nn.functional.cross_entropy(ddp(gate), y)
    if rank == 1:
        dist.recv(token, src=0)
    loss.backward()  # type: ignore[no-untyped-call]
    return gradients(ddp)


def default_caps(answer: Answer, module: nn.Module) -> None:
    """Run a backward with more than 1 MB of gradients, with the answer's default bucket caps."""
    wrap(answer, module)(torch.ones(1, 1)).sum().backward()


def other_order(answer: Answer, layers: nn.ModuleList, use: Sequence[int]) -> None:
    """Train three steps; each layer has its own bucket.

    The model uses the layers in the order `use`, not in the order of definition.
    """
    ddp = wrap(answer, Chosen(*layers), bucket_cap_mb=0)
    for _ in range(3):
        ddp.zero_grad()
        ddp(torch.ones(1, 1), use).backward()
        torch.optim.SGD(ddp.parameters(), lr=0.0).step()


def _two_backwards(ddp: Any, x: Tensor, use: Sequence[int]) -> Gradients:
    for factor in (1, 2):
        ddp.zero_grad()
        ddp(factor * x, use).backward()
    return gradients(ddp)


def partly_used(
    answer: Answer, layers: nn.ModuleList, x: Tensor, use: Sequence[int]
) -> tuple[Gradients, Gradients]:
    """Return the gradients of the answer and of torch after backwards that use only some layers."""
    mine, theirs = Chosen(*layers), Chosen(*deepcopy(layers))
    options: dict[str, Any] = {"bucket_cap_mb": 0, "find_unused_parameters": True}
    with span(OWN):
        found = _two_backwards(wrap(answer, mine, **options), x, use)
    options["bucket_cap_mb"] = 1e-6  # less than one byte: torch 2.11 does not accept 0
    return found, _two_backwards(torchs(theirs, **options), x, use)


def said_of_missing(answer: Answer, layers: nn.ModuleList, use: Sequence[int]) -> list[str]:
    """Return the parameters that the error in backward names, if all ranks leave out a layer.

    `use` has the layers that the ranks use.
    """
    ddp = wrap(answer, Chosen(*layers), bucket_cap_mb=0)
    try:
        ddp(torch.ones(1, 4), use).backward()
    except RuntimeError as error:
        said = named(error, dict(ddp.module.named_parameters()))
        if not said:
            raise
        return said
    return []
