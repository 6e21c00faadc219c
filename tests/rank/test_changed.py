"""gloo writes past torch: operations do not change the versions of the tensors that are watched."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from ddpkit.protocol.call import Call
from ddpkit.rank.group.changed import have_changed, versions

NETWORKS = {
    "real": {},
    "link": {"link": "1 Gbit/s, 20 us"},
    "machine": {"link": "1 Gbit/s, 20 us", "machine": "1 TFLOP/s"},
}


def grown() -> list[str]:
    """Return the operations after which a watched tensor has another version."""
    rank, size, found = dist.get_rank(), dist.get_world_size(), []
    x, coming, leaving = torch.ones(8), torch.ones(8 * size), torch.ones(8 * size)
    parts = [torch.ones(8) for _ in range(size)]
    others = [torch.ones(8) for _ in range(size)]
    root = rank == 0
    for name, watched, post in (
        ("all_reduce", [x], lambda: dist.all_reduce(x, async_op=True)),
        ("broadcast", [x], lambda: dist.broadcast(x, 0, async_op=True)),
        ("reduce", [x], lambda: dist.reduce(x, 0, async_op=True)),
        ("all_gather", [x], lambda: dist.all_gather(parts, x, async_op=True)),
        ("gather", [x], lambda: dist.gather(x, parts if root else None, async_op=True)),
        ("scatter", parts, lambda: dist.scatter(x, parts if root else None, async_op=True)),
        ("reduce_scatter", parts, lambda: dist.reduce_scatter(x, parts, async_op=True)),
        ("all_to_all", others, lambda: dist.all_to_all(parts, others, async_op=True)),
        (
            "all_to_all_single",
            [leaving],
            lambda: dist.all_to_all_single(coming, leaving, async_op=True),
        ),
        ("message", [x], lambda: dist.isend(x, 1) if root else dist.irecv(x, 0)),
    ):
        before = [each._version for each in watched]
        post().wait()
        if before != [each._version for each in watched]:
            found.append(name)
    return found


@pytest.mark.processes
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_the_network_leaves_versions_as_they_are(network: dict[str, str]) -> None:
    assert Cluster(2, **network).run(grown).results == [[], []]


@pytest.mark.processes
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_an_average_is_no_change(
    network: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The backend divides by an operation of torch, which changes the version once."""

    def averages() -> float:
        x = torch.full((8,), float(dist.get_rank()))
        for _ in range(20):
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True).wait()
        return x[0].item()

    assert Cluster(2, **network).run(averages).results == [0.5, 0.5]
    assert "changed the tensor" not in capfd.readouterr().out


SEND = Call("send", via="isend", peer=1)


def test_a_change_of_a_whole_tensor_counts() -> None:
    x = torch.ones(4)
    before = versions(SEND, [x], 0)
    assert not have_changed(before)
    x.view(2, 2)[1] += 1
    assert have_changed(before)


def test_a_change_beside_a_view_does_not_count() -> None:
    x = torch.ones(4)
    half = x[:2]
    before = versions(SEND, [half], 0)
    x[2:] += 1
    assert not have_changed(before)


def test_a_tensor_that_is_gone_has_not_changed() -> None:
    x = torch.ones(4)
    before = versions(SEND, [x], 0)
    x += 1
    del x
    assert not have_changed(before)


@pytest.mark.parametrize(
    "call",
    [
        Call("send"),
        Call("all_reduce", via="backward"),
        Call("recv", via="recv_object_list"),
        Call("all_reduce", reduce="AVG"),
    ],
    ids=["blocks", "DDP's", "objects", "divides"],
)
def test_calls_that_are_not_watched(call: Call) -> None:
    assert versions(call, [torch.ones(4)], 0) == []


def test_tensors_without_a_version_are_not_watched() -> None:
    with torch.inference_mode():
        assert versions(SEND, [torch.ones(4)], 0) == []
