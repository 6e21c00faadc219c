"""Chakra execution traces: the graph of a rank, and the files, decoded again.

Chakra's own package is not on PyPI. The tools of github.com/mlcommons/chakra (version 1.0.0, commit
21585d8) were tried by hand, with an emulated run of DDP on three ranks, a step of this run, `ddp`
and the NCCL recording: chakra_jsonizer and chakra_visualizer have read the files, and a replay of
the nodes from the feeder in C++ has ended with the recorded window, to the microsecond. ASTRA-sim
was not tried.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ddpkit import Cluster
from ddpkit.commands.main import main
from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace
from ddpkit.trace.files.chakra import CollectiveCommType, NodeType, message_classes
from ddpkit.trace.files.graph import IDLE, GraphNode, rank_graph
from ddpkit.trace.intervals import total, union
from tests.trace.recordings import event, gpu_step, of_rank, write
from tests.view import examples

MS = 1_000_000


def compute(start: int, end: int, kind: str = "forward", rank: int = 0) -> Span:
    return Span(rank, "compute", kind, kind, start * MS, end * MS)


def comm(
    start: int, end: int, waited: int | None = None, name: str = "all_reduce", **more: Any
) -> Span:
    """Return an operation.

    `waited` is the time at which the rank begins to wait, None for never.
    """
    blocked = None if waited is None else waited * MS
    over = None if waited is None else max(waited, end) * MS
    return Span(
        0, "comm", name, "comm", start * MS, end * MS, 8, blocked_ns=blocked, collected_ns=over,
        **more,
    )  # fmt: skip


def told(spans: list[Span]) -> list[tuple[str, int, int, list[int]]]:
    nodes = rank_graph(Trace(spans, 1), 0)
    return [(n.name, n.start_ns // MS, n.end_ns // MS, sorted(n.after)) for n in nodes]


def test_an_operation_is_posted_within_compute_and_waited_for() -> None:
    """The backward is cut at the post; the optimizer needs both parts and the operation."""
    spans = [compute(0, 100, "backward"), comm(40, 130, waited=100), compute(130, 150, "optimizer")]
    assert told(spans) == [
        ("backward", 0, 40, []),
        ("all_reduce", 40, 130, [1]),
        ("backward", 40, 100, [1]),
        ("optimizer", 130, 150, [2, 3]),
    ]


def test_a_wait_that_finds_its_operation_done_still_needs_it() -> None:
    spans = [compute(0, 100), comm(10, 30, waited=60)]
    assert [each[2:] for each in told(spans)][-1] == (100, [2, 3])
    assert told(spans)[-1][:2] == ("forward", 60)


def test_nothing_waits_for_an_unwaited_operation() -> None:
    spans = [comm(10, 30), comm(40, 50, waited=40), compute(0, 40), compute(50, 100)]
    nodes = rank_graph(Trace(spans, 1), 0)
    (unwaited,) = (n for n in nodes if n.operation is spans[0])
    assert not any(unwaited.number in node.after for node in nodes)


def test_idle_time_is_kept_and_waits_are_not() -> None:
    spans = [compute(0, 10), comm(20, 50, waited=20), compute(60, 70)]
    assert told(spans) == [
        ("forward", 0, 10, []),
        (IDLE, 10, 20, [1]),
        ("all_reduce", 20, 50, [2]),
        (IDLE, 50, 60, [3]),
        ("forward", 60, 70, [4]),
    ]


def test_a_ring_keeps_few_edges() -> None:
    """Each round needs the round before it, not all rounds."""
    spans = []
    for k in range(50):
        spans += [comm(10 * k, 10 * k + 10, waited=10 * k, name="isend", peer=0)]
        spans += [comm(10 * k, 10 * k + 10, waited=10 * k, name="irecv", peer=0)]
    nodes = rank_graph(Trace(spans, 1), 0)
    assert len(nodes) == 100
    assert max(len(node.after) for node in nodes) == 2
    assert ends(nodes) == 500 * MS


def test_a_profilers_recording_waits_where_nothing_is_computed(tmp_path: Path) -> None:
    """The all_reduce of `gpu_step` is exposed, and the optimizer has three kernels after it."""
    copy = event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1542, 8, 7, bytes=10)
    (path,) = write(tmp_path, of_rank(0, 1, *gpu_step(0), *gpu_step(1), copy, backend="nccl"))
    nodes = rank_graph(Trace.load(path).step(1), 0)
    (reduced,) = (node for node in nodes if node.operation)
    assert [n.name for n in nodes if n.name != IDLE] == [
        *("host→device", "sgemm", "sgemm_nt", "all_reduce", "sgd", "sgd", "sgd")
    ]
    after = [node for node in nodes if node.start_ns >= reduced.end_ns]
    assert reduced.number in after[0].after


def ends(nodes: list[GraphNode]) -> int:
    """Return the end of a replay in which each node takes as long as it was recorded."""
    end: dict[int, int] = {}
    for node in nodes:
        begin = max((end[each] for each in node.after), default=0)
        end[node.number] = begin + node.end_ns - node.start_ns
    return max(end.values(), default=0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=8))
def test_a_replay_ends_when_the_rank_has_ended(rows: list[tuple[int, int, bool]]) -> None:
    """A program has computes and operations, each waited for at once or at the end."""
    spans, now, open_ = [], 0, list[tuple[int, int]]()
    for computed, moved, at_once in rows:
        if computed:
            spans.append(compute(now, now + computed))
            now += computed
        if at_once:
            spans.append(comm(now, now + moved, waited=now))
            now += moved
        else:
            open_.append((now, now + moved))
    spans += [comm(start, end, waited=now) for start, end in open_]
    now = max([now, *(end for _, end in open_)])
    trace = Trace(spans, 1)
    nodes = rank_graph(trace, 0)
    assert ends(nodes) == trace.end_ns - trace.start_ns
    computed_ns = sum(n.end_ns - n.start_ns for n in nodes if n.span and n.span.is_compute)
    assert computed_ns == trace.breakdown()[0].compute_ns
    assert all(each < node.number for node in nodes for each in node.after)
    assert len([n for n in nodes if n.operation]) == len([s for s in spans if s.is_comm])


def decoded(path: Path) -> tuple[Any, list[Any]]:
    """Return the metadata and the nodes of a file."""
    proto = pytest.importorskip("google.protobuf.proto")
    file, classes = io.BytesIO(path.read_bytes()), message_classes()
    metadata = proto.parse_length_prefixed(classes["GlobalMetadata"], file)
    nodes = []
    while (node := proto.parse_length_prefixed(classes["Node"], file)) is not None:
        nodes.append(node)
    return metadata, nodes


def attributes(message: Any) -> dict[str, Any]:
    return {each.name: getattr(each, each.WhichOneof("value")) for each in message.attr}


def test_the_files_have_the_numbers_of_the_trace(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf.proto")
    trace = examples.ddp(3, steps=2)
    written = trace.to_chakra(tmp_path / "run.et")
    assert [path.name for path in written] == [
        *(f"run.{r}.et" for r in range(3)),
        "run.groups.json",
    ]
    for rank, path in enumerate(written[:3]):
        metadata, nodes = decoded(path)
        assert attributes(metadata)["rank"] == rank
        assert attributes(metadata)["ddpkit backend"] == "gloo"
        kinds = Counter(NodeType(node.type).name for node in nodes)
        assert kinds["COMM_COLL_NODE"] == 10
        reduced = [attributes(n) for n in nodes if n.type == NodeType.COMM_COLL_NODE]
        assert {each["comm_type"] for each in reduced} == {CollectiveCommType.ALL_REDUCE}
        assert sum(each["comm_size"] for each in reduced) == 10 * 4_000_000
        own = [node for node in nodes if node.type == NodeType.COMP_NODE and node.name != IDLE]
        lasted = sum(node.duration_micros for node in own)
        assert lasted == pytest.approx(trace.breakdown()[rank].compute_ns / 1000, abs=len(own))
        assert [node.id for node in nodes] == [*range(1, len(nodes) + 1)]


def test_messages_and_groups(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf.proto")
    sub = {"group": "tp", "seq": 0}
    spans = [
        Span(0, "comm", "send", "comm", 0, 5000, 12, peer=1, args={"tag": 7}),
        Span(1, "comm", "recv", "comm", 0, 5000, 12, peer=0, args={"tag": 7}),
        *(Span(r, "comm", "all_gather", "comm", 6000, 9000, 4, **sub) for r in (1, 2)),
    ]
    *files, groups = Trace(spans, 3).to_chakra(tmp_path / "run.et")
    assert json.loads(groups.read_text()) == {"tp": [1, 2]}
    (send,) = (n for n in decoded(files[0])[1] if n.type == NodeType.COMM_SEND_NODE)
    assert attributes(send) == {
        "is_cpu_op": False, "comm_src": 0, "comm_dst": 1, "comm_tag": 7, "comm_size": 12,
    }  # fmt: skip
    receive, gather = (n for n in decoded(files[1])[1] if n.name != IDLE)
    assert (attributes(receive)["comm_src"], attributes(receive)["comm_dst"]) == (0, 1)
    assert attributes(gather)["pg_name"] == "tp"
    assert attributes(gather)["comm_type"] == CollectiveCommType.ALL_GATHER
    assert (gather.start_time_micros, gather.duration_micros) == (6, 3)


@pytest.mark.parametrize(
    ("span", "says"),
    [
        (Span(0, "comm", "nccl_operation", "comm", 0, 9), "no collective for 'nccl_operation'"),
        (Span(0, "comm", "recv", "comm", 0, 9), "a recv with an unknown peer"),
    ],
)
def test_refused_operations(tmp_path: Path, span: Span, says: str) -> None:
    pytest.importorskip("google.protobuf.proto")
    with pytest.raises(TraceError, match=says):
        Trace([span], 1).to_chakra(tmp_path / "run.et")
    assert not [*tmp_path.iterdir()]


def test_without_protobuf_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message_classes.cache_clear()
    for name in ("google", "google.protobuf"):
        monkeypatch.setitem(sys.modules, name, None)
    examples.ddp(2).save(tmp_path / "run.json")
    target = str(tmp_path / "run.et")
    done = CliRunner().invoke(main, ["trace", str(tmp_path / "run.json"), "--export", target])
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == (
        "Error: a Chakra trace needs the package protobuf: pip install 'protobuf>=6.30'"
    )


def test_the_command_writes_a_step(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf.proto")
    examples.ddp(2, steps=2).save(tmp_path / "run.json")
    args = ["trace", str(tmp_path / "run.json"), "--step", "1", "--export", str(tmp_path / "s.et")]
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 0, done.output
    assert f"wrote {tmp_path / 's.1.et'}" in done.output
    _, nodes = decoded(tmp_path / "s.0.et")
    assert sum(node.type == NodeType.COMM_COLL_NODE for node in nodes) == 5
    nothing = Trace((), 2).to_chakra(tmp_path / "none.et")
    assert nothing == []


def train() -> None:
    """Train DDP on two ranks with several buckets."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()


@pytest.mark.slow
def test_an_emulated_run_replays_to_its_own_length() -> None:
    """All waits of DDP are in the graph: with the recorded durations, each rank ends as it did."""
    machine = "100 GFLOP/s, 100 GB/s, 1 GB, 5 us"
    run = Cluster(2, link="1 Gbit/s, 20 us", machine=machine).run(train).trace
    for rank in run.ranks:
        nodes = rank_graph(run, rank)
        start, end = run.window_of(rank)
        assert ends(nodes) == pytest.approx(end - start, rel=0.001)
        stretches = [(n.start_ns, n.end_ns) for n in nodes if not n.operation]
        assert total(union(stretches)) == sum(e - s for s, e in stretches)  # one after the other
        assert sum(1 for n in nodes if n.operation) == sum(s.is_comm for s in run.of(rank))
