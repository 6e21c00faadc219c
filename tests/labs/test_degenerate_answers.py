"""Answers without the point of an exercise earn at most 6 % of its points.

The tests ask each exercise of the kit, so the list is complete. The kit's answer is asked with all
messages dropped, with all messages in files, and with all messages past the record. Exercises with
a limit on memory also get answers with everything in memory. `test_trivial_answers.py` has the
empty answers.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import answers
from ddpkit.exercises import exercises, judge
from ddpkit.exercises.seeds import Seed
from ddpkit.exercises.values import Between
from ddpkit.exercises.verdict import verdict_text
from ddpkit.grade.questions import Answer
from tests.labs import unseen

MOST = 0.06  # a share of an exercise's points
OTHERWISE = {  # (exercise, way) -> points of exercises that give more, with the reasons
    # The right answer sends a barrier, without bytes. Without the barrier one case of five fails,
    # and four cases ask for the order of writing and renaming, and for one writer. A checkpoint is
    # a file, so a check allows files, and ranks may wait for each other by files too.
    ("save_checkpoint", "nowhere"): 1.6,
    ("save_checkpoint", "files"): 2.0,
    ("save_checkpoint", "unrecorded"): 2.0,
}
MEMORY = ("bytes held", "bytes of state", "kept at rest", "blocks in memory", "memory")

cloudpickle.register_pickle_by_value(unseen)
by_hand = pytest.mark.slow


@by_hand  # the kit's answers on ranks, three times
@pytest.mark.processes("some")
@pytest.mark.parametrize("way", unseen.WAYS)
@pytest.mark.parametrize("name", sorted(exercises()))
def test_a_right_answer_whose_messages_go_another_way_earns_nothing(
    name: str, way: str, tmp_path: Path
) -> None:
    exercise = exercises()[name]
    with unseen.unseen(way, tmp_path):
        verdict = judge(exercise, answers.get(name))
    if unseen.calls_in(tmp_path) == 0:
        pytest.skip("the right answer sends nothing itself")
    most = OTHERWISE.get((name, way), MOST * exercise.points)
    assert verdict.earned <= most, verdict_text(verdict)


# Everything in memory


def hidden(layer: nn.Module) -> Callable[..., Any]:
    """Return a function with a layer in the closure, hidden from modules."""
    whole = deepcopy(layer)
    return lambda *given, **named: whole(*given, **named)


def keeps_the_mlp(mlp, rank, world_size):
    class Sliced(nn.Module):
        def __init__(self):
            super().__init__()
            first, _, second = mlp
            mine = torch.arange(first.out_features).tensor_split(world_size)[rank]
            self.up = nn.Parameter(first.weight[mine].detach().clone())
            self.up_bias = nn.Parameter(first.bias[mine].detach().clone())
            self.down = nn.Parameter(second.weight[:, mine].detach().clone())
            self.bias = nn.Parameter(second.bias.detach().clone())
            self.compute = hidden(mlp)

        def forward(self, x):
            dist.all_reduce(torch.zeros(*x.shape[:-1], len(self.bias)))
            return self.compute(x)

    return Sliced()


def keeps_the_attention(attention, rank, world_size):
    class Sliced(nn.Module):
        def __init__(self):
            super().__init__()
            self.compute = hidden(attention)

        def forward(self, x):
            dist.all_reduce(torch.zeros_like(x))
            return self.compute(x, x, x, need_weights=False)[0]

    return Sliced()


class StepsAll(torch.optim.Optimizer):
    """Steps all numbers on each rank, hides the state between steps, and sends zeros."""

    def __init__(self, params, optimizer_class, **options):
        super().__init__(params, options)
        trained = [{**group, "params": [p for p in group["params"] if p.requires_grad]}
                   for group in self.param_groups]  # fmt: skip
        inner, kept = optimizer_class(trained, **options), []
        for group, theirs in zip(self.param_groups, inner.param_groups, strict=True):
            for option, value in theirs.items():
                group.setdefault(option, value)

        def step():
            for group, theirs in zip(self.param_groups, inner.param_groups, strict=True):
                theirs.update({name: group[name] for name in group if name != "params"})
            if kept:
                inner.state.update(kept.pop())
            inner.step()
            kept.append(dict(inner.state))
            inner.state.clear()
            numbers = sum(p.numel() for group in trained for p in group["params"])
            n = dist.get_world_size()
            part = torch.zeros(-(-numbers // n))
            dist.all_gather_into_tensor(torch.zeros(len(part) * n), part)

        self.all_of_it = step

    def step(self, closure=None):
        self.all_of_it()


class KeepsTheBlock(nn.Module):
    """Computes with a whole block on each rank, and sends zeros; the shard is for show."""

    def __init__(self, block, dtype=None):
        super().__init__()
        numbers = torch.cat([torch.zeros(0), *(p.detach().flatten() for p in block.parameters()
                                               if p.requires_grad)])  # fmt: skip
        n = dist.get_world_size()
        padded = nn.functional.pad(numbers, (0, -len(numbers) % n))
        self.shard = nn.Parameter(padded.chunk(n)[dist.get_rank()].clone())
        self.compute = hidden(block)

    def forward(self, x):
        dist.all_gather_into_tensor(torch.zeros(len(self.shard) * dist.get_world_size()),
                                    self.shard.detach())  # fmt: skip
        return self.compute(x)


def a_view_of_all(flat):
    """Return a view of a part of the mean; the rank keeps the whole mean."""
    whole = flat.clone()
    dist.all_reduce(whole)
    return (whole / dist.get_world_size()).chunk(dist.get_world_size())[dist.get_rank()]


KEEPS: dict[str, Callable[..., Any]] = {
    "SlicedMLP": keeps_the_mlp,
    "SlicedAttention": keeps_the_attention,
    "ShardedOptimizer": StepsAll,
    "FullyShard": KeepsTheBlock,
    "reduce_to_owner": a_view_of_all,
}


@by_hand
@pytest.mark.processes("some")
@pytest.mark.parametrize("name", KEEPS)
def test_an_answer_that_keeps_everything_earns_nothing(name: str) -> None:
    exercise = exercises()[name]
    verdict = judge(exercise, KEEPS[name])
    assert verdict.earned <= MOST * exercise.points, verdict_text(verdict)


@pytest.mark.processes("some")
@pytest.mark.parametrize("name", sorted(exercises()))
def test_what_limits_bytes_names_the_least_too(name: str) -> None:
    """Check that a range of bytes has a least above 0 for some rank."""
    exercise = exercises()[name]
    for case in exercise.asks(Answer(name), Seed("a secret").rng(name)):
        if not case.trivial and any(_range(case.expect.get(what)) for what in MEMORY):
            assert name in KEEPS, f"{name} limits memory: add an answer that keeps everything"
        ranges = [each for each in case.expect.items() if _range(each[1])]
        sent = [_range(due) for what, due in ranges if what not in (*MEMORY, "operations")]
        if sent and not case.trivial:
            assert any(each.least for found in sent for each in found), case.title


def _range(due: Any) -> list[Between]:
    each = due if isinstance(due, list) else due.values() if isinstance(due, dict) else [due]
    return [one for one in each if isinstance(one, Between)]
