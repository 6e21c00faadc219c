"""A case may ask for emulated time and peak memory, computed again from the ranks' programs."""

from __future__ import annotations

import copy
import json
import random
import sys
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from ddpkit import busy
from ddpkit.errors import LessonError, RankError
from ddpkit.exercises import Case, Exercise, judge
from ddpkit.exercises.ranks import Did, asked, call, timed, together
from ddpkit.grade.decode import decode
from ddpkit.grade.inside.claims import encode
from ddpkit.grade.score import says
from ddpkit.protocol.per_rank import PerRank
from ddpkit.simulate import program_ns
from ddpkit.trace import Trace
from tests.grade.outside import Recorded

MACHINE, LINK = "1 GFLOP/s, 10 GB/s, 1 MB, 1 us", "1 Gbit/s, 20 us"
N = 3
on_machine = {"world_size": N, "machine": MACHINE, "link": LINK}


def in_a_ring(x: torch.Tensor) -> torch.Tensor:
    """Sum by a ring of messages, with matrix products at the same time."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total, moving = x.clone(), x.clone()
    for _ in range(n - 1):
        coming = torch.empty_like(x)
        works = [dist.isend(moving, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]
        _ = x.view(20, 50) @ x.view(50, 20)
        for work in works:
            work.wait()
        total += coming
        moving = coming
    return total


def by_torch(x: torch.Tensor) -> torch.Tensor:
    """Sum by torch, and compute meanwhile; some ranks begin later than others."""
    total = x.clone()
    busy(0.0001 * dist.get_rank())
    work = dist.all_reduce(total, async_op=True)
    _ = x.view(20, 50) @ x.view(50, 20)
    work.wait()
    first = total[:10].clone()
    dist.broadcast(first, src=1)
    dist.barrier()
    return total


def one_after_the_other(x: torch.Tensor) -> torch.Tensor:
    """Sum on rank 0, which receives messages in any order."""
    if dist.get_rank():
        dist.send(x, 0)
    else:
        coming = torch.empty_like(x)
        for _ in range(dist.get_world_size() - 1):
            dist.recv(coming)
            x = x + coming
    x = x.clone()
    dist.broadcast(x, 0)
    return x


def emulated_ns(did: Did) -> int:
    """Return the time of the ranks by their own clocks."""
    windows = [did.trace.window_of(rank) for rank in did.trace.ranks]
    assert len({start for start, _ in windows}) == 1
    return max(end for _, end in windows) - windows[0][0]


@pytest.mark.processes
@pytest.mark.parametrize("answer", [in_a_ring, by_torch, one_after_the_other])
def test_the_time_is_that_of_the_ranks_to_the_nanosecond(answer: Any) -> None:
    did = call(answer, torch.ones(1000), world_size=N, machine=MACHINE, link=LINK)
    assert torch.equal(did.returned[0], torch.full((1000,), float(N)))
    # the form in which it leaves the sandbox
    claimed = decode(json.loads(json.dumps(encode(did.programs))))
    assert program_ns(claimed, MACHINE, LINK) == emulated_ns(did) > 0
    assert program_ns(claimed, MACHINE, "unlimited") < emulated_ns(did)


# A toy exercise: all-reduce, at least as fast as a ring, on modelled machines


def cases(answer: Any, rng: Any) -> Any:
    """Sum tensors, fast enough."""
    given = [torch.full((1000,), float(rng.randrange(9))) for _ in range(N)]
    total = torch.stack(given).sum(0)

    def fast(observed: Any) -> Any:
        seen = timed(observed, MACHINE, LINK)
        return {**seen, "in time": seen["ms"] < 1.0, "peak": max(seen["peak"])}

    see = {"gave": "returned", "programs": "programs", "peak": "peak"}
    yield Case(
        "3 ranks",
        asked(answer, PerRank(given), see=see, **on_machine),
        {"gave": [total] * N, "in time": True},
        read=fast,
    )


TOY = Exercise("toy_sum", "90", 1, "A sum", cases)


def naive(x: torch.Tensor) -> torch.Tensor:
    """Compute the right sum too slowly: each rank sends all of its data to each rank."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    for _ in range(10):
        dist.all_gather(parts, x)
    return torch.stack(parts).sum(0)


def clock_patched(x: torch.Tensor) -> torch.Tensor:
    """Be too slow, and set the clock back, for the trace and for the user's code."""
    from ddpkit.rank.emulation import machine

    here = machine.current()
    assert here is not None
    before = here.clocks.main.now()
    total = naive(x)
    here.clocks.main._ns = before
    return total


def judged(answer: Any) -> tuple[str, ...]:
    """Return the grader's verdict on an answer, after the answer's claims went through JSON."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    recorded = Recorded(TOY)
    judge(recorded.recording(), answer)
    (row,) = recorded.rows
    return row.status, says(row)


@pytest.mark.processes
def test_the_grader_recomputes_the_time() -> None:
    assert judged(in_a_ring) == ("pass", "")
    assert judged(naive) == ("fail", "in time is False")


@pytest.mark.processes
def test_a_patched_clock_gains_nothing() -> None:
    did = call(clock_patched, torch.ones(1000), world_size=N, machine=MACHINE, link=LINK)
    slow = call(naive, torch.ones(1000), world_size=N, machine=MACHINE, link=LINK)
    assert emulated_ns(did) < 1000
    assert program_ns(did.programs, MACHINE, LINK) >= emulated_ns(slow)
    assert judged(clock_patched)[0] == "fail"


@pytest.mark.processes
def test_forged_spans_gain_nothing() -> None:
    """The time does not come from the trace: without spans, or with other spans, it is the same."""
    did = call(in_a_ring, torch.ones(1000), world_size=N, machine=MACHINE, link=LINK)
    (case,) = TOY.cases(None, random.Random(0))
    seen = {"gave": did.returned, "programs": did.programs, "peak": did.peak}
    honest = timed(seen, MACHINE, LINK)["ms"]
    assert honest == emulated_ns(did) / 1e6
    forged = replace(did, trace=Trace((), N, did.trace.facts, dict.fromkeys(range(N), (0, 1))))
    seen |= {"programs": forged.programs}
    assert case.reading(seen)["ms"] == honest


WORK = ["work", "matmul", "float32", 10**6, 0, 1]  # a millisecond of work
POST = ["post", 1, "send", 8, "", [0, 1], 0, None, 1, 0]
TAKE = ["post", 1, "recv", 8, "", [0, 1], 0, None, 0, 0]


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        (["no program"], "not a list"),
        ([[["work", "matmul", "float32", -1, 0, 1]]], "below 0"),
        ([[["work", "magic", "float32", 1, 0, 1]]], "unknown kind"),
        ([[["work", "matmul", "float32", 1, 0]]], "unknown kind"),
        ([[["work", "matmul", "float32", True, 0, 1]]], "below 0"),
        ([[["stated", -5]]], "below 0"),
        ([[["skip", 5]]], "an unknown kind"),
        ([[[]]], "not a list"),
        ([[["wait", 1]]], "not posted"),
        ([[[*POST[:8], 7, 0]], []], "a rank outside the run"),
        ([[[*POST[:8], None, 0]], []], "no peer"),
        # the receiver's program is left out
        ([[POST, ["wait", 1]], []], "block forever on ranks \\[0\\]"),
        ([[["post", 1, "teleport", 8, "", [0], 1, None, None, 0]]], "unknown operation"),
        ([[["post", 1, "all_reduce", 8, "", [], 1, None, None, 0]]], "no members"),
        ([[["beyond", "a thread of its own"]]], "cannot be recomputed: 'a thread"),
        ([[WORK] * 100_001], "more than 100000 entries"),
    ],
)
def test_what_is_no_program_earns_nothing(forged: Any, says: str) -> None:
    with pytest.raises(LessonError, match=says):
        timed({"programs": forged}, MACHINE, LINK)


def test_programs_take_the_time_of_what_they_hold() -> None:
    assert program_ns([[WORK]], "1 GFLOP/s, 1 us") == 1_001_000
    assert program_ns([[WORK], [["stated", 5]]], {0: "2 GFLOP/s", 1: "1 GFLOP/s"}) == 500_000
    sent = [[WORK, POST, ["wait", 1]], [TAKE, ["wait", 1]]]
    assert program_ns(sent, "1 GFLOP/s", "8 MB/s, 10 us") == 1_000_000 + 10_000 + 1000
    twice = copy.deepcopy(sent)
    twice[0].append(["wait", 1])
    assert program_ns(twice, "1 GFLOP/s", "8 MB/s, 10 us") == program_ns(
        sent, "1 GFLOP/s", "8 MB/s, 10 us"
    )


# Calls in which no emulated time passes

FREE = {"machine": "1 TFLOP/s"}  # only matrix products take time


def element_wise(x: torch.Tensor) -> torch.Tensor:
    """Hold three times the bytes of the argument for a moment."""
    return ((x + 1) * 2).sum()


def in_no_time(x: torch.Tensor) -> torch.Tensor:
    """Send without a product before or after."""
    if dist.get_rank():
        dist.recv(x, 0)
    else:
        dist.send(x, 1)
    return x


def a_product_and_a_sum(x: torch.Tensor) -> torch.Tensor:
    """End with an operation that takes no time."""
    total = x.view(20, 50) @ x.view(50, 20)
    dist.all_reduce(total)
    return total


@pytest.mark.processes
def test_bytes_that_are_held_for_no_time_are_in_the_peak() -> None:
    did = call(element_wise, torch.ones(1000), world_size=2, **FREE)
    assert did.peak == [3 * 4000] * 2
    taking_time = call(element_wise, torch.ones(1000), world_size=2, machine="1 TFLOP/s, 100 GB/s")
    assert taking_time.peak == did.peak


@pytest.mark.processes
def test_calls_that_take_no_time_are_told_apart() -> None:
    lengths = (1000, 10, 100)
    calls = [[(torch.ones(length),)] * 2 for length in lengths]
    did = [each() for each in together(in_no_time, calls, **FREE)]
    assert [each.bytes for each in did] == [[4 * length, 0] for length in lengths]
    assert [each.messages for each in did] == [[1, 0]] * 3
    assert did[0].to == "0→1"


@pytest.mark.processes
def test_an_operation_that_ends_a_call_in_no_time_is_in_it() -> None:
    did = call(a_product_and_a_sum, torch.ones(1000), world_size=2, **FREE)
    assert did.collectives == ["all_reduce"]
    assert program_ns(did.programs, FREE["machine"]) > 0


def the_same(x: torch.Tensor) -> list[torch.Tensor]:
    """Return new tensors of the argument's bytes."""
    return [x + 1, x + 2]


@pytest.mark.processes
@pytest.mark.parametrize("machine", ["1 TFLOP/s", "1 TFLOP/s, 100 GB/s"])
def test_earlier_arguments_and_results_are_in_no_later_peak(machine: str) -> None:
    """A reply packs large and small buffers in different ways."""
    for length in (1000, 100_000):
        calls = [[(torch.full((length,), float(each)),)] * 2 for each in range(4)]
        did = [each() for each in together(the_same, calls, machine=machine)]
        assert [each.peak for each in did] == [[3 * 4 * length] * 2] * 4
        assert [each.returned[1][1].tolist()[0] for each in did] == [2.0, 3.0, 4.0, 5.0]
        assert all(each.kept for each in did)


@pytest.mark.processes
def test_a_result_that_cannot_be_sent_is_refused_in_the_words_of_every_run() -> None:
    def answer() -> Any:
        return (each for each in range(3))

    with pytest.raises(RankError) as on_machine:
        call(answer, world_size=1, **FREE)
    with pytest.raises(RankError) as without:
        call(answer, world_size=1)
    assert str(on_machine.value) == str(without.value)
    assert "generator" in str(without.value)
