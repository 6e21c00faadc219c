"""Recordings of torch.profiler become traces; the fixtures' README names their sources."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from ddpkit.trace.files import disk
from ddpkit.trace.intervals import total, union
from ddpkit.view import timeline_model
from tests.properties import examples
from tests.trace.recordings import event, of_rank, recording, write

FIXTURES = Path(__file__).parent / "fixtures"
GLOO = [FIXTURES / f"gloo.rank{rank}.json.gz" for rank in (0, 1)]
NCCL = [FIXTURES / f"nccl.rank{rank}.json" for rank in (0, 1)]
FLOAT = 4
KINDS = ("forward", "backward", "optimizer", "span")


def raw_events(path: Path, prefix: str) -> list[dict[str, Any]]:
    data = path.read_bytes()
    top = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    found = [e for e in top["traceEvents"] if e["ph"] == "X" and e["name"].startswith(prefix)]
    return sorted(found, key=lambda event: event["ts"])


@pytest.fixture(scope="module")
def gloo() -> Trace:
    return Trace.load(*GLOO)


@pytest.fixture(scope="module")
def nccl() -> Trace:
    return Trace.load(*NCCL)


def comm(trace: Trace, rank: int, name: str) -> list[Span]:
    return [span for span in trace.of(rank) if span.is_comm and span.name == name]


# gloo, recorded


def test_gloo_facts(gloo: Trace) -> None:
    assert gloo.world_size == 2
    assert gloo.steps == 2
    assert dict(gloo.facts) == {
        "backend": "gloo", "device": "cpu", "recorded_by": "torch.profiler",
    }  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
def test_gloo_communication_is_its_annotations(gloo: Trace, rank: int) -> None:
    raw = raw_events(GLOO[rank], "gloo:")
    spans = [span for span in gloo.of(rank) if span.is_comm]
    assert Counter(f"gloo:{span.name}" for span in spans) == Counter(e["name"] for e in raw)
    lengths = sorted(event["dur"] * 1000 for event in raw)
    assert sorted(span.duration_ns for span in spans) == pytest.approx(lengths, abs=1)


@pytest.mark.parametrize("rank", [0, 1])
def test_gloo_bytes_are_those_of_the_shapes(gloo: Trace, rank: int) -> None:
    elements = [e["args"]["Input Dims"][0][0] for e in raw_events(GLOO[rank], "gloo:all_reduce")]
    assert sum(elements[:2]) == 3 * (256 * 256 + 256)  # the model's gradients, in two buckets
    spans = comm(gloo, rank, "all_reduce")
    assert sorted(span.bytes for span in spans) == sorted(FLOAT * each for each in elements)


def test_gloo_messages_know_their_peers(gloo: Trace) -> None:
    assert [span.peer for span in comm(gloo, 0, "send")] == [1, 1]
    assert [span.peer for span in comm(gloo, 1, "recv")] == [0, 0]
    assert gloo.traffic.to(0, 1) == 2 * 10 * FLOAT


def test_gloo_collectives_are_matched(gloo: Trace) -> None:
    for name in ("all_reduce", "barrier"):
        for zero, one in zip(comm(gloo, 0, name), comm(gloo, 1, name), strict=True):
            assert zero.seq == one.seq
            assert zero.ready_ns == one.ready_ns == max(zero.start_ns, one.start_ns)


@pytest.mark.parametrize("rank", [0, 1])
def test_gloo_parts_of_a_step(gloo: Trace, rank: int) -> None:
    names = {kind: {s.name for s in gloo.of(rank) if s.kind == kind} for kind in KINDS}
    assert {"aten::linear", "aten::relu", "aten::sum"} <= names["forward"]
    assert {"AddmmBackward0", "torch::autograd::AccumulateGrad"} <= names["backward"]
    assert names["optimizer"] == {"aten::add_"}
    assert not any("c10d" in name or "gloo" in name for each in names.values() for name in each)


@pytest.mark.parametrize("rank", [0, 1])
def test_gloo_compute_is_all_time_in_operators(gloo: Trace, rank: int) -> None:
    """Count the same time differently: all operators, except c10d's and operators inside these.

    Operators of the backward count even inside an operator of c10d.
    """
    raw = raw_events(GLOO[rank], "")
    loops = {event["tid"] for event in raw if event["name"].startswith("gloo:all_reduce")}
    ops = [e for e in raw if e["cat"] == "cpu_op" and e["tid"] not in loops]
    c10d = [e for e in ops if e["name"].startswith("c10d::")]
    backward = [e for e in ops if e["name"].startswith("autograd::engine")]
    inside = [e for e in ops if e in backward or not any(within(e, other) for other in c10d)]
    expected = total((ns(e["ts"]), ns(e["ts"] + e["dur"])) for e in inside)
    computed = union((s.start_ns, s.end_ns) for s in gloo.of(rank) if s.is_compute)
    assert total(computed) == pytest.approx(expected, abs=2 * len(ops))  # each rounded to 1 ns


def within(event: dict[str, Any], other: dict[str, Any]) -> bool:
    starts = other["ts"] <= event["ts"] < other["ts"] + other["dur"]
    return starts and event["tid"] == other["tid"]


def ns(us: float) -> int:
    return round(us * 1000)


def test_gloo_breakdown_adds_up(gloo: Trace) -> None:
    for trace in (gloo, gloo.step(0), gloo.step(1)):
        for rank, part in trace.breakdown().items():
            start, end = trace.window_of(rank)
            assert part.step_ns == end - start > 0
            assert part.comm_ns > 0
            assert part.compute_ns > 0


# NCCL, written by hand: write_nccl.py shows the expected numbers


def test_nccl_breakdown(nccl: Trace) -> None:
    us = 1000
    zero, one = nccl.breakdown().values()
    assert (zero.compute_only_ns, zero.overlapped_ns) == (220 * us, 50 * us)
    assert (zero.exposed_ns, zero.copy_ns, zero.idle_ns) == (160 * us, 10 * us, 10 * us)
    assert (one.compute_only_ns, one.overlapped_ns) == (170 * us, 100 * us)
    assert (one.exposed_ns, one.copy_ns, one.idle_ns) == (160 * us, 10 * us, 10 * us)


def test_nccl_kernels_belong_to_what_launched_them(nccl: Trace) -> None:
    compute = [span for span in nccl.of(0) if span.is_compute]
    assert [(span.name, span.kind) for span in compute] == [
        ("ampere_sgemm_128x64_tn", "forward"),
        ("ampere_sgemm_32x32_nt", "backward"),
        ("at::native::multi_tensor_apply_kernel", "optimizer"),
    ]


def test_nccl_operations(nccl: Trace) -> None:
    (zero,), (one,) = comm(nccl, 0, "all_reduce"), comm(nccl, 1, "all_reduce")
    assert (zero.bytes, zero.group, zero.seq) == (4_000_000, "0", 41)
    assert zero.args["group_size"] == 2
    assert one.ready_ns == zero.start_ns == one.start_ns + 50_000
    assert nccl.traffic.to(0, 1) == 4_000_000
    assert [span.peer for span in comm(nccl, 1, "recv")] == [0]
    assert nccl.facts["device"] == "cuda"
    assert nccl.facts["backend"] == "nccl"


def test_nccl_step_is_that_of_the_gpu(nccl: Trace) -> None:
    assert nccl.steps == 1
    (step,) = (span for span in nccl.of(0) if span.kind == "step")
    assert step.duration_ns == 450_000  # its annotations on two streams together


# files made here


OP = event("cpu_op", "aten::mm", 10, 5)


def test_a_recording_made_on_our_ranks_names_the_backend_and_not_its_wrapper(
    tmp_path: Path,
) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, OP, backend="ddpkit_gloo"))
    assert Trace.load(path).facts["backend"] == "gloo"


def test_a_file_alone_need_not_say_its_rank(tmp_path: Path) -> None:
    (path,) = write(tmp_path, {"traceEvents": [OP]})
    trace = Trace.load(path)
    assert trace.world_size == 1
    assert trace.breakdown()[0].compute_ns == 5000


def test_missing_ranks_have_empty_windows(tmp_path: Path) -> None:
    trace = Trace.load(*write(tmp_path, of_rank(2, 4, OP), of_rank(0, 4, OP)))
    assert [part.step_ns for part in trace.breakdown().values()] == [5000, 0, 5000, 0]
    assert trace.facts["recorded_ranks"] == "0, 2"


def test_other_hosts_are_said(tmp_path: Path) -> None:
    tops = [{**of_rank(rank, 2, OP), "host_name": f"node{rank}"} for rank in (0, 1)]
    assert Trace.load(*write(tmp_path, *tops)).facts["hosts"] == 2


def test_steps_without_profiler_step(tmp_path: Path) -> None:
    optimizer = [event("user_annotation", "Optimizer.step#SGD.step", ts, 10) for ts in (50, 90)]
    ops = [event("cpu_op", "aten::add_", ts, 5) for ts in (52, 92)]
    (path,) = write(tmp_path, recording(OP, *optimizer, *ops))
    trace = Trace.load(path)
    assert trace.steps == 2
    assert [trace.step(k).window_of(0) for k in (0, 1)] == [(10_000, 60_000), (60_000, 100_000)]
    assert [span.kind for span in trace.spans if span.name == "aten::add_"] == ["optimizer"] * 2


def test_different_numbers_of_collectives_are_not_matched(tmp_path: Path) -> None:
    """The profiler of one rank began later: nothing shows which collective the other lacks."""
    reduces = [event("user_annotation", "gloo:all_reduce", ts, 3, tid=9) for ts in (10, 20)]
    paths = write(tmp_path, of_rank(0, 2, *reduces), of_rank(1, 2, reduces[1]))
    assert {span.ready_ns for span in Trace.load(*paths).spans} == {None}


def test_groups_that_gloo_does_not_name_are_not_matched(tmp_path: Path) -> None:
    reduce = event("user_annotation", "gloo:all_reduce", 10, 3, tid=9)
    paths = write(tmp_path, *(of_rank(rank, 2, reduce, pg_count=3) for rank in (0, 1)))
    assert {span.ready_ns for span in Trace.load(*paths).spans} == {None}


def test_lengths_below_zero_are_moments(tmp_path: Path) -> None:
    """Older profilers write negative lengths."""
    (path,) = write(tmp_path, recording(event("cpu_op", "aten::mm", 10, -3)))
    assert [span.duration_ns for span in Trace.load(path).spans] == [0]


@pytest.mark.parametrize(
    "args",
    [
        {"Input Dims": 3, "Input type": 4},
        {"Input Dims": [[-1]], "Input type": ["float"]},
        {"Input Dims": ["ab", [[2**70] * 50]], "Input type": ["float", {}]},
        {"Input Dims": [[2**70] * 1000], "Input type": ["float"]},
        {"Concrete Inputs": {"a": 1}},
    ],
)
def test_odd_args_cost_only_what_they_say(tmp_path: Path, args: dict[str, Any]) -> None:
    around = event("cpu_op", "c10d::send", 9, 20, **args)
    (path,) = write(
        tmp_path, recording(around, event("user_annotation", "gloo:send", 10, 3, **args))
    )
    (span,) = Trace.load(path).spans
    assert (span.name, span.peer, span.duration_ns) == ("send", None, 3000)
    assert 0 <= span.bytes < 2**65


@pytest.mark.parametrize(
    ("tops", "sentence"),
    [
        ([{"traceEvents": 3}], "traceEvents are damaged"),
        ([recording(event("cpu_op", "mm", "ten", 1))], "('mm') has the ts 'ten', which is not"),
        ([recording(event("cpu_op", "mm", 1, None))], "('mm') has the dur 'None'"),
        ([recording(event("cpu_op", "mm", float("nan"), 1))], "has the ts 'nan'"),
        ([recording(event("cpu_op", "mm", 10**30, 1))], "has the ts '1000000"),
        ([recording(event("cpu_op", "mm", 10**400, 1))], "has the ts '1000000"),
        ([recording(OP, event("kernel", [1], 1, 1))], "event 1 ('[1]') has no name"),
        ([recording(OP, baseTimeNanoseconds="x")], "baseTimeNanoseconds is damaged"),
        (
            [of_rank(0, 10**9, OP)],
            "world_size is '1000000000', but must be a whole number from 1 to 65536",
        ),
        ([of_rank(2, 2, OP)], "rank is '2', but must be a whole number from 0 to 1"),
        ([of_rank("0", 2, OP)], "rank is '0', but must be a whole number from 0 to 1"),
        ([of_rank(0, 2, OP), of_rank(0, 2, OP)], "both come from rank 0: name one file per rank"),
        ([of_rank(0, 2, OP), of_rank(1, 3, OP)], "from a job of 2 ranks,"),
        ([of_rank(0, 2, OP), {"traceEvents": [OP]}], "the rank is missing"),
        ([{"a": 1}], "is neither a trace saved by ddpkit nor a recording of torch.profiler"),
        ([[]], "is neither a trace saved by ddpkit nor a recording of torch.profiler"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, tops: list[Any], sentence: str) -> None:
    paths = write(tmp_path, *tops)
    with pytest.raises(TraceError) as caught:
        Trace.load(*paths)
    assert sentence in str(caught.value)
    assert str(paths[-1]) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_too_large_to_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """A small file that unpacks to a large one is refused too."""
    monkeypatch.setattr(disk, "MAX_BYTES", 2000)
    data = json.dumps(recording(*[OP] * 100)).encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert not packed or path.stat().st_size < 2000
    with pytest.raises(TraceError, match="too much to read at once: record fewer steps"):
        Trace.load(path)


def test_a_saved_trace_stands_alone(tmp_path: Path, nccl: Trace) -> None:
    nccl.save(tmp_path / "whole.json")
    assert Trace.load(tmp_path / "whole.json") == nccl
    with pytest.raises(TraceError, match="whole.json is a trace of all ranks"):
        Trace.load(NCCL[0], tmp_path / "whole.json")


def test_no_files_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace file was named"):
        Trace.load()
    with pytest.raises(TraceError, match="the folder .* has no trace file"):
        Trace.load(tmp_path)


ODD = [None, True, -1, 2**80, 1.5, float("inf"), "", "x" * 300, [], {}, [[]], {"rank": 0}]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a JSON value."""
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    found = [(node, key) for key in keys]
    inner = [node[key] for key in keys if isinstance(node[key], dict | list)]
    return found + [place for each in inner for place in places(each)]


def recordings() -> list[Any]:
    return [json.loads(path.read_text()) for path in NCCL]


DAMAGES = st.lists(
    st.tuples(st.integers(0, len(places(recordings())) - 1), st.sampled_from(ODD)),
    min_size=1,
    max_size=3,
)


@examples(100)
@given(damages=DAMAGES)
def test_damage_anywhere_is_a_trace_error_or_no_matter(
    tmp_path_factory: pytest.TempPathFactory, damages: list[tuple[int, Any]]
) -> None:
    tops = recordings()
    found = places(tops)
    for which, odd in damages:
        container, key = found[which]
        container[key] = odd
    tmp_path = tmp_path_factory.mktemp("damaged")
    paths = write(tmp_path, *tops)
    try:
        trace = Trace.load(*paths)
    except TraceError:
        return
    for part in trace.breakdown().values():
        assert part.step_ns >= 0
    trace.to_chrome(tmp_path / "out")
    assert timeline_model(trace).text
