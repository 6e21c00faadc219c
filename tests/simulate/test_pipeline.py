"""Plans of a pipeline: time, bubble and memory, compared with formulas and with ranks."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, busy
from ddpkit.simulate import (
    PIPELINES,
    bubbles,
    held,
    pipeline_plans,
    pipeline_time,
    waits_for_ever,
)
from ddpkit.simulate.step.pipeline import Op, op_name, op_of
from ddpkit.trace import Trace

SIZES = [(1, 1), (1, 3), (2, 1), (4, 2), (4, 8), (5, 7), (16, 32)]  # stages, micro-batches


def step_ms(trace: Trace) -> float:
    return (trace.end_ns - trace.start_ns) / 1e6


@pytest.mark.parametrize(("stages", "micro"), SIZES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager 1f1b"])
def test_a_step_takes_what_the_formula_says(name: str, stages: int, micro: int) -> None:
    for forward, backward in ((20, 40), (10, 10)):
        trace = pipeline_time(
            pipeline_plans(name, stages, micro), forward=forward / 1e3, backward=backward / 1e3
        )
        assert step_ms(trace) == (micro + stages - 1) * (forward + backward)
        share = (stages - 1) / (micro + stages - 1)
        assert bubbles(trace) == pytest.approx([share] * stages)


@pytest.mark.parametrize(("stages", "micro"), SIZES)
def test_what_is_held(stages: int, micro: int) -> None:
    assert [held(plan) for plan in pipeline_plans("gpipe", stages, micro)] == [micro] * stages
    fewest = [min(micro, stages - stage) for stage in range(stages)]
    assert [held(plan) for plan in pipeline_plans("1f1b", stages, micro)] == fewest


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (4, 12), (8, 16)])
def test_zero_bubble_leaves_what_its_paper_says(stages: int, micro: int) -> None:
    """Qi et al., 2023, table 1: (p - 1)(F + B - 2W), where B is the whole backward.

    Memory as 1F1B.
    """
    plans = pipeline_plans("zero bubble", stages, micro)
    assert step_ms(pipeline_time(plans)) == micro * 60 + (stages - 1) * (20 + 40 - 2 * 20)
    assert max(map(held, plans)) == stages


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (4, 16), (8, 16)])
def test_interleaving_divides_the_bubble_by_the_chunks(stages: int, micro: int) -> None:
    """Narayanan et al., 2021, section 2.2: (p - 1)(F + B) / v."""
    plans = pipeline_plans("interleaved", stages, micro)
    trace = pipeline_time(plans, forward="10 ms", backward="20 ms")
    assert step_ms(trace) == micro * 60 + (stages - 1) * 60 / 2
    sends = sum(span.is_send for span in trace.spans)
    assert sends == 2 * micro * (2 * stages - 1)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_micro_batch_goes_once_through_every_layer(name: str) -> None:
    plans = pipeline_plans(name, 4, 8)
    ops = [(op[0], op[1], *(op[2:] or (rank,))) for rank, plan in enumerate(plans) for op in plan]
    layers = 8 if name == "interleaved" else 4
    kinds = "FBW" if name == "zero bubble" else "FB"
    assert sorted(ops) == sorted(itertools.product(kinds, range(8), range(layers)))


def test_latency_is_paid_once_or_in_each_round() -> None:
    steps = {
        name: step_ms(pipeline_time(pipeline_plans(name, 4, 8), link="10 ms"))
        for name in ("gpipe", "1f1b", "eager 1f1b")
    }
    assert steps == {"gpipe": 720, "1f1b": 820, "eager 1f1b": 720}


def test_bytes_take_their_time_on_the_wire() -> None:
    link = {"default": "1 Gbit/s"}
    trace = pipeline_time(pipeline_plans("gpipe", 2, 1), link=link, nbytes=125_000_000)
    assert step_ms(trace) == 2 * 60 + 2 * 1000
    assert trace.traffic.sent(0) == 125_000_000


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (4, 16)])
def test_the_interleaved_order_is_torchs(stages: int, micro: int) -> None:
    from torch.distributed.pipelining import schedules  # takes a second in each worker

    torchs = schedules.ScheduleInterleaved1F1B
    if not hasattr(torchs, "_calculate_single_rank_operations"):
        pytest.skip("this torch makes its orders in another way: compare with that")
    facts = SimpleNamespace(
        n_local_stages=2,
        pp_group_size=stages,
        _n_microbatches=micro,
        microbatches_per_round=stages,
    )
    for rank, plan in enumerate(pipeline_plans("interleaved", stages, micro)):
        actions = torchs._calculate_single_rank_operations(facts, rank)
        found = [
            (one.computation_type.name.endswith("BACKWARD"), one.microbatch_index, one.stage_index)
            for one in actions
            if one is not None
        ]
        assert found == [(kind == "B", *place) for kind, *place in plan]


def test_who_waits_for_ever_is_named() -> None:
    plans = pipeline_plans("1f1b", 2, 2)
    plans[0] = [("F", 0), ("B", 0), ("B", 1), ("F", 1)]
    assert waits_for_ever(plans) == {0: ("B", 1), 1: ("F", 1)}
    with pytest.raises(ValueError, match="block forever: rank 0 for B1, rank 1 for F1"):
        pipeline_time(plans)


def test_sends_that_block_let_gpipe_through_and_not_1f1b() -> None:
    assert waits_for_ever(pipeline_plans("gpipe", 4, 8), blocking=True) == {}
    stuck = waits_for_ever(pipeline_plans("1f1b", 4, 8), blocking=True)
    assert stuck == {0: ("F", 3), 1: ("F", 2), 2: ("F", 1), 3: ("B", 0)}


def test_bad_sizes_and_names_are_refused() -> None:
    with pytest.raises(ValueError, match="one of gpipe, 1f1b"):
        pipeline_plans("dualpipe", 4, 8)
    with pytest.raises(ValueError, match="stages=0"):
        pipeline_plans("gpipe", 0, 8)
    with pytest.raises(ValueError, match="a multiple of 4 micro-batches .*, not 6"):
        pipeline_plans("interleaved", 4, 6)
    with pytest.raises(ValueError, match="no spans|named F0"):
        bubbles(Trace((), 2))


@pytest.mark.parametrize("op", [("F", 0), ("B", 12), ("W", 3, 5)])
def test_names_are_read_again(op: Op) -> None:
    assert op_of(op_name(op)) == op
    assert op_of(f"{op_name(op)} ") is None


def run_plan(plans: list[list[Op]]) -> None:
    """Run the messages and stated times of a plan, without a model."""
    rank, last, works = dist.get_rank(), dist.get_world_size() - 1, []
    message = torch.zeros(1)
    for kind, i in plans[rank]:
        before, after = (rank - 1, rank + 1) if kind == "F" else (rank + 1, rank - 1)
        if 0 <= before <= last:
            dist.recv(torch.zeros(1), before)
        busy("20 ms" if kind == "F" else "40 ms", op_name((kind, i)))
        if 0 <= after <= last:
            works.append(dist.isend(message, after))
    for work in works:
        work.wait()


@pytest.mark.processes("some")
@pytest.mark.parametrize(("name", "stages", "micro"), [("1f1b", 4, 5), ("1f1b", 16, 32)])
def test_ranks_on_an_emulated_cluster_take_as_long(name: str, stages: int, micro: int) -> None:
    """Every operation of every rank agrees to the nanosecond."""
    plans = pipeline_plans(name, stages, micro)
    seen = Cluster(stages, link="10 ms", speed=math.inf).run(run_plan, plans).trace
    predicted = pipeline_time(plans, link="10 ms", nbytes=4)
    assert _times(seen) == _times(predicted)


def _times(trace: Trace) -> list[list[tuple[str, int, int]]]:
    """Return rank -> name, start and end of each operation, counted from the first one's start."""
    ops = [span for span in trace.spans if span.is_compute and op_of(span.name)]
    start = min(span.start_ns for span in ops)
    return [
        [(o.name, o.start_ns - start, o.end_ns - start) for o in ops if o.rank == rank]
        for rank in trace.ranks
    ]
