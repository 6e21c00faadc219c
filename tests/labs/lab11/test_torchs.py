"""Lab 11's answers beside torch.distributed.pipelining: gradients, orders, errors, times."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

from ddpkit import Cluster
from ddpkit.answers import lab11
from ddpkit.errors import Deadlock
from ddpkit.simulate import held, pipeline_plans, pipeline_time
from ddpkit.simulate.step.pipeline import Op

RANKS, MICRO, ROWS = 4, 8, 2
LETTERS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W"}
ALONE, V = ("GPipe", "1F1B"), ("ZBVZeroBubble", "DualPipeV")
TURNS = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")


def layer(rank: int) -> torch.nn.Linear:
    torch.manual_seed(rank)
    return torch.nn.Linear(3, 3)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(9)
    return torch.randn(MICRO * ROWS, 3), torch.randn(MICRO * ROWS, 3)


def ours(name: str) -> Any:
    stage, (x, target) = layer(dist.get_rank()), batch()
    plan = getattr(lab11, {"GPipe": "gpipe", "1F1B": "one_f_one_b"}[name])
    lab11.pipeline_step(
        plan(dist.get_rank(), RANKS, MICRO), stage, x.chunk(MICRO), target.chunk(MICRO), mse_loss,
        torch.zeros(ROWS, 3),
    )  # fmt: skip
    return stage.weight.grad


def torchs(name: str, skipped_by: int = -1) -> Any:
    from torch.distributed import pipelining

    rank, (x, target) = dist.get_rank(), batch()
    stage, last = layer(rank), dist.get_world_size() - 1
    like = torch.zeros(ROWS, 3, requires_grad=rank > 0)
    wrapped = pipelining.PipelineStage(
        stage, rank, last + 1, torch.device("cpu"), input_args=like,
        output_args=torch.zeros(ROWS, 3, requires_grad=True),
    )  # fmt: skip
    schedule = getattr(pipelining, f"Schedule{name}")(wrapped, MICRO, loss_fn=mse_loss)
    if rank != skipped_by:
        schedule.step(*[x] * (rank == 0), target=target if rank == last else None)
    return stage.weight.grad


def both(train: Callable[[str], Any]) -> list[Any]:
    """Return the weight's gradient by both schedules."""
    return [train(name) for name in ALONE]


@pytest.mark.processes("some")
def test_gradients_and_messages_are_torchs_and_those_of_one_process() -> None:
    cluster = Cluster(RANKS, link="10 ms", machine="laptop core", speed=math.inf)
    runs = [cluster.run(both, f) for f in (ours, torchs)]
    layers, (x, target) = [layer(rank) for rank in range(RANKS)], batch()
    mse_loss(torch.nn.Sequential(*layers)(x), target).backward()
    for run in runs:
        assert run.trace.facts["time"] == "emulated"
        for found, right in zip(run.results, layers, strict=True):
            assert all(torch.allclose(each, right.weight.grad, atol=1e-6) for each in found)
    sent = [[run.traffic.to(a, b) for a, b in ((0, 1), (1, 0), (2, 3))] for run in runs]
    assert sent[0] == [2 * MICRO * ROWS * 3 * 4] * 3  # bytes of two schedules
    # Before each schedule, torch's stages agree on a number, by messages in both directions. Since
    # torch 2.15, they use an all-reduce around a ring.
    agreed = [8, 0, 8] if torch.__version__ >= "2.15" else [8, 8, 8]
    assert sent[1] == [each + more for each, more in zip(sent[0], agreed, strict=True)]


@pytest.mark.processes("some")
def test_a_rank_that_leaves_torchs_schedule_out_is_named() -> None:
    with pytest.raises(Deadlock, match="rank 1 returned"):
        Cluster(2).run(torchs, "1F1B", 1)


def torchs_orders() -> dict[str, list[Op]]:
    """Return this rank's plan by each of torch's schedules."""
    from torch.distributed import pipelining

    p, rank = dist.get_world_size(), dist.get_rank()
    found = {}
    for name in (*ALONE, *TURNS, *V):
        parts = [rank] if name in ALONE else [rank, 2 * p - 1 - rank if name in V else p + rank]
        whole = p * len(parts)
        stages: Any = [
            pipelining.PipelineStage(torch.nn.Linear(2, 2), i, whole, torch.device("cpu"))
            for i in parts
        ]
        made = getattr(pipelining, f"Schedule{name}")
        if name in ALONE:
            actions = made(stages[0], MICRO, loss_fn=mse_loss)._get_pipeline_order()[rank]
        else:
            actions = made(stages, MICRO, loss_fn=mse_loss).pipeline_order[rank]
        each = [one for act in actions if act for one in act.sub_actions or [act]]
        found[name] = [
            (LETTERS[one[1].name], one.microbatch_index, one.stage_index)
            for one in each
            if one[1].name in LETTERS
        ]
    return found


@pytest.mark.processes("some")
def test_torchs_orders_take_what_the_papers_say() -> None:
    """Each schedule of torch equals our plan, or takes the time of its paper's formula."""
    results = Cluster(RANKS).run(torchs_orders).results
    plans = {name: [each[name] for each in results] for name in results[0]}
    for name, own in (("GPipe", "gpipe"), ("1F1B", "1f1b"), ("Interleaved1F1B", "interleaved")):
        for rank, plan in enumerate(pipeline_plans(own, RANKS, MICRO)):
            placed = [op if len(op) == 3 else (*op, rank) for op in plan]
            theirs = plans[name][rank]
            # torch 2.13 lists F1 to F8 of 8 micro-batches there
            if (name, rank) == ("1F1B", RANKS - 1):
                assert [op[0] for op in theirs] == [op[0] for op in placed]
            else:
                assert theirs == placed
    times, most = {}, {}
    for name in (*TURNS, *V):  # the parts have half the size: F, B and W take 10 ms each
        trace = pipeline_time(plans[name], forward=0.01, backward=0.02)
        times[name], most[name] = trace.duration_ms, max(map(held, plans[name])) / 2
    in_turn, split = MICRO * 60 + (RANKS - 1) * 30, MICRO * 60 + (RANKS - 1) * 10
    assert times == dict(zip((*TURNS, *V), (in_turn, in_turn, split, split, split), strict=True))
    # in micro-batches: 1F1B's p and one more in flight for turns, p for ZBV, all for LoopedBFS
    assert most == dict(zip((*TURNS, *V), (5.5, MICRO, RANKS, RANKS, 4.5), strict=True))
