"""A call that the backend refuses, and that the program catches, has never been made."""

import time

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from ddpkit.protocol import blackbox
from ddpkit.protocol.blackbox import MAKING, BlackBox, encode
from ddpkit.protocol.call import Call

TIMES = 40  # enough calls for a look of the launcher during one call
NETWORKS = {
    "real": {},
    "link": {"link": "1 Gbit/s, 20 us"},
    "machine": {"machine": "1 TFLOP/s", "link": "1 Gbit/s, 20 us"},
}
in_every_time = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def gathers_into_other_shapes(x):
    dist.all_gather([torch.empty(3) for _ in range(dist.get_world_size())], x)


def gathers_from_too_few(x):
    dist.all_gather([torch.empty(2)] * (dist.get_world_size() - 1), x)


def scatters_from_its_own_rank(x):
    """Name the calling rank as the root: each rank is right alone, but the roots differ."""
    rank = dist.get_rank()
    dist.scatter(x, [torch.empty(9)] * dist.get_world_size(), src=rank)


def sends_a_strided_tensor(x):
    dist.send(torch.ones(4, 4)[:, 0], (dist.get_rank() + 1) % dist.get_world_size())


def sums_something_sparse_and_dense(x):
    dist.all_reduce_coalesced([x, torch.eye(2).to_sparse()])


REFUSED = [
    gathers_into_other_shapes,
    gathers_from_too_few,
    scatters_from_its_own_rank,
    sends_a_strided_tensor,
    sums_something_sparse_and_dense,
]


def tries(call, ranks):
    """Make calls that only some ranks make and that are refused, and calls that all ranks make."""
    rank, size = dist.get_rank(), dist.get_world_size()
    refused = 0
    for _ in range(TIMES):
        if rank in ranks:
            try:
                call(torch.ones(2))
            except (RuntimeError, ValueError):
                refused += 1
        total = torch.full((2,), 1.0 + rank)
        dist.all_reduce(total)
    x = torch.zeros(2)
    sending = dist.isend(torch.full((2,), 1.0 * rank), (rank + 1) % size)
    dist.recv(x, (rank - 1) % size)
    sending.wait()
    dist.broadcast(total, src=1)
    return refused, total.tolist(), x.tolist()


@pytest.mark.processes("some")
@in_every_time
@pytest.mark.parametrize("call", REFUSED)
@pytest.mark.parametrize("ranks", [(0, 1, 2), (1,)], ids=["on all ranks", "on one rank"])
def test_a_refused_call_has_never_been_made(call, ranks, network):
    run = Cluster(3, **network).run(tries, call, ranks)
    for rank, (refused, total, came) in enumerate(run.results):
        assert refused == (TIMES if rank in ranks else 0)
        assert (total, came) == ([6.0, 6.0], [float((rank - 1) % 3)] * 2)
        spans = [span for span in run.trace.of(rank) if span.kind == "comm"]
        ops = [span.name for span in spans]
        assert sorted(ops) == sorted(["all_reduce"] * TIMES + ["send", "recv", "broadcast"])
        numbers = [span.seq for span in spans if span.name in ("all_reduce", "broadcast")]
        assert numbers == list(range(1, TIMES + 2))
    if "machine" in network:  # without a machine, the rank's own compute counts
        taken = [span.duration_ns for span in run.trace.spans if span.name == "all_reduce"]
        assert max(taken) < 1_000_000  # ten times as long as a message of 8 bytes takes


def test_a_call_that_is_refused_is_never_read(tmp_path):
    box = BlackBox.create(tmp_path / "rank0")
    reader = BlackBox(tmp_path / "rank0")
    text = encode(Call("all_reduce"))
    first = box.write_call(text, 1 | MAKING)
    assert reader.new_calls() == ([], 0)
    box.refused(first)
    assert reader.new_calls() == ([], 0)
    second = box.write_call(text, 1 | MAKING)
    box.made(second, 1)
    assert reader.new_calls() == ([Call("all_reduce", seq=1)], 0)
    assert box.calls_written == 1
    assert reader.last_calls() == {1: Call("all_reduce", seq=1)}


def test_a_call_that_hangs_in_the_backend_is_read_after_a_moment(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    box = BlackBox.create(tmp_path / "rank0")
    reader = BlackBox(tmp_path / "rank0")
    box.write_call(encode(Call("broadcast")), 4 | MAKING)
    assert reader.new_calls() == ([], 0)
    now += 2 * blackbox.HELD
    assert reader.new_calls() == ([Call("broadcast", seq=4)], 0)
    assert reader.last_calls() == {0: Call("broadcast", seq=4)}
