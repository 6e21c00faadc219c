"""Lab 07: functions on ranks that call a hook, with buckets of the check or in torch's DDP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ddpkit.checks.lab07 import WITH_THE_HOOK
from ddpkit.checks.shared.models import Part, loss_of
from ddpkit.exercises.guard import signature
from ddpkit.rank.record.marks import span
from ddpkit.torch_private import is_future

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

CAP_MB = 0.00001  # 10 bytes: each gradient of `linear`, also a vector, gets its own bucket
TURN = 7  # tag of the message that gives the turn to the next rank
STEPS_AS_EVER = 2  # steps before the hook begins: torch rebuilds the buckets after the first step


def bucket_of(tensors: Sequence[Tensor], index: int = 0, *, last: bool = True) -> SimpleNamespace:
    """Return a stand-in for torch's GradBucket: one flat tensor, and gradients as views of it."""
    flat: Any = torch.cat([each.reshape(-1) for each in tensors])
    parts = flat.split([each.numel() for each in tensors])
    views = [part.view(each.shape) for part, each in zip(parts, tensors, strict=True)]
    parameters = [torch.zeros_like(each) for each in tensors]
    return SimpleNamespace(
        buffer=lambda: flat,
        gradients=lambda: list(views),
        parameters=lambda: list(parameters),
        index=lambda: index,
        is_last=lambda: last,
    )


def value_of(future: Any) -> Any:
    """Return the value of a hook's Future; return a text if the result is not a Future."""
    if isinstance(future, dist.Work):
        future.wait()
        return "a Work"
    if not is_future(future):
        return f"no Future: {type(future).__name__}"
    value = future.wait()
    return value.clone() if isinstance(value, torch.Tensor) else value


@contextmanager
def in_turn(ranks: Sequence[int]) -> Iterator[None]:
    """Let the ranks enter the block one after another: a rank enters when the previous has left.

    A rank that waits, inside the block, for a later rank waits forever.
    """
    at, token = list(ranks).index(dist.get_rank()), torch.zeros(1)
    if at:
        dist.recv(token, src=ranks[at - 1], tag=TURN)
    yield
    if at < len(ranks) - 1:
        dist.send(token, dst=ranks[at + 1], tag=TURN)


def averaged(hook: Answer, members: Sequence[int] | None, flat: Tensor) -> object:
    """Return the value of a hook's Future on the group of ranks `members`; None means all ranks."""
    group = dist.new_group(list(members)) if members else None
    ranks = members or range(dist.get_world_size())
    if dist.get_rank() not in ranks:
        return "no member"
    with in_turn(ranks), span(WITH_THE_HOOK):
        future = hook(group, bucket_of([flat]))
    with span(WITH_THE_HOOK):
        return value_of(future)


def in_ddp(hook: Answer, state: object, module: Module, parts: Sequence[Part]) -> list[Tensor]:
    """Return the gradients of the backwards in torch's DDP in which the hook runs.

    DDP averages without the hook in the first STEPS_AS_EVER steps.
    """
    ddp = DistributedDataParallel(module, bucket_cap_mb=CAP_MB)
    ddp.register_comm_hook(state, _later(hook))
    return gradients_of(ddp, parts)[STEPS_AS_EVER:]


def gradients_of(ddp: Any, parts: Sequence[Part]) -> list[Tensor]:
    """Return the gradients after a backward for each part, each joined into one tensor."""
    found = []
    for step, part in enumerate(parts):
        ddp.zero_grad()
        with span(WITH_THE_HOOK if step >= STEPS_AS_EVER else "a backward as ever"):
            loss_of(ddp, part).backward()
        found.append(torch.cat([p.grad.flatten() for p in ddp.parameters()]))
    return found


def _later(hook: Answer) -> Answer:
    """Return a hook that averages like DDP in the first steps, and then calls the answer."""
    steps = SimpleNamespace(done=0)

    # No annotations here: torch reads annotations, and expects its own classes. torch also requires
    # a parameter called `bucket`; through `__signature__`, torch sees the answer's parameters.
    def either(state, bucket):  # type: ignore[no-untyped-def]
        done = steps.done
        steps.done += bucket.is_last()
        if done >= STEPS_AS_EVER:
            return hook(state, bucket)
        flat = bucket.buffer().div_(dist.get_world_size())
        work = dist.all_reduce(flat, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    either.__signature__ = signature(hook)  # type: ignore[attr-defined]
    return either


# Gossip


def pairs_by_digit() -> list[dist.ProcessGroup]:
    """Return this rank's groups of two ranks, one for each binary digit of the rank numbers.

    The numbers of the two ranks of a group differ only in this digit.
    """
    rank, world_size, mine = dist.get_rank(), dist.get_world_size(), []
    for i in range(world_size.bit_length() - 1):
        for first in range(world_size):
            if not first >> i & 1:
                group = dist.new_group([first, first | 1 << i])
                if rank & ~(1 << i) == first:
                    mine.append(group)
    return mine


def members_and_sums(pair_groups: Answer) -> list[list[int] | str]:
    """Return each group's members, and the sum of their numbers by an all-reduce in the group."""
    found: list[list[int] | str] = []
    for group in pair_groups():
        if group is None or group == dist.GroupMember.NON_GROUP_MEMBER:
            return ["a group without this rank"]
        total = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(total, group=group)
        found.append([*sorted(dist.get_process_group_ranks(group)), int(total)])
    return found


def gossiped(hook: Answer, steps: Sequence[Sequence[Tensor]]) -> tuple[list[list[object]], int]:
    """Return the hook's results for the buckets of several steps, and `state.step` at the end."""
    pairs = pairs_by_digit()
    state, found = SimpleNamespace(pairs=pairs, step=0), []
    for number, buckets in enumerate(steps):
        pair = dist.get_process_group_ranks(pairs[number % len(pairs)])
        futures = []
        for i, flat in enumerate(buckets):
            with in_turn(sorted(pair)), span(WITH_THE_HOOK):
                futures.append(hook(state, bucket_of([flat], i, last=i == len(buckets) - 1)))
        with span(WITH_THE_HOOK):
            found.append([value_of(future) for future in futures])
    return found, state.step


def gossip_in_ddp(hook: Answer, module: Module, parts: Sequence[Part]) -> list[Tensor]:
    """Run `in_ddp` on two ranks, which form one pair."""
    return in_ddp(hook, SimpleNamespace(pairs=pairs_by_digit(), step=0), module, parts)


# PowerSGD


def compressed(
    hook: Answer, rank: int, steps: Sequence[Sequence[Sequence[Tensor]]], *, forget: bool = False
) -> list[list[object]]:
    """Return the hook's result for each bucket as [step][bucket]; all calls share one state.

    With `forget`, the errors are cleared after each step, as in the lesson's run without feedback.
    """
    state, found = SimpleNamespace(rank=rank, q={}, error={}), []
    for buckets in steps:
        last = len(buckets) - 1
        found.append(
            [
                value_of(hook(state, bucket_of(tensors, i, last=i == last)))
                for i, tensors in enumerate(buckets)
            ]
        )
        if forget:
            state.error.clear()
    return found


def compressed_again(
    hook: Answer, rank: int, tensors: Sequence[Tensor], times: int
) -> tuple[object, str]:
    """Call a hook `times` times with equal buckets; return the sum of the results, and a word.

    The word describes the error that the state holds after the first call. It is "zero", "turned
    round" if the error is the sent gradient minus the wanted gradient, and otherwise "".
    """
    state, total, kept = SimpleNamespace(rank=rank, q={}, error={}), 0.0, ""
    for step in range(times):
        bucket = bucket_of(tensors)
        own = bucket.buffer().clone()
        sent = value_of(hook(state, bucket))
        error = state.error.get(0)
        if step == 0 and isinstance(error, torch.Tensor) and error.shape == own.shape:
            kept = "zero" * (not error.any()) or "turned round" * error.allclose(sent - own)
        total = total + sent
    return total, kept


def low_rank_in_ddp(hook: Answer, rank: int, module: Module, parts: Sequence[Part]) -> list[Tensor]:
    """Run `in_ddp` with a state for PowerSGD of rank `rank`."""
    return in_ddp(hook, SimpleNamespace(rank=rank, q={}, error={}), module, parts)
