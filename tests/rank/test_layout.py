"""Strided and shared tensors: refused if the numbers would be wrong, and in no other case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster, Mismatch, RankError
from ddpkit.rank.group import layout, shared_memory
from ddpkit.rank.group.recorded import RecordedGroup
from tests.rank import layouts
from tests.ways import WAYS, run

in_every_way = pytest.mark.parametrize("way", WAYS)


class Allowed(Exception):
    """Raised when the group would post a call."""


def of_gloo_and_of_the_kit(named: str) -> dict[str, tuple[bool, bool]]:
    """Return two marks for each case: gloo's numbers are wrong; the kit refuses the call."""
    found = list(getattr(layouts, named)())
    wrong, checks = {}, (layout.order, shared_memory.check)
    layout.order, shared_memory.check = lambda *_: (), lambda *_: None
    for name, case in found:
        try:
            came, promised = case()
            wrong[name] = not all(map(torch.equal, came, promised))
        except (RuntimeError, ValueError):  # gloo refuses the call
            wrong[name] = True
    layout.order, shared_memory.check = checks

    def allowed(*_: Any, **__: Any) -> None:
        raise Allowed

    posted, RecordedGroup._posted = RecordedGroup._posted, allowed
    refused = {}
    for name, case in found:
        with pytest.raises((Allowed, ValueError)) as caught:
            case()
        refused[name] = caught.type is ValueError
    RecordedGroup._posted = posted
    return {name: (wrong[name], refused[name]) for name in wrong}


OVERWRITTEN = {
    "all_gather, same outputs",
    "all_gather, overlapping outputs",
    "gather, same outputs",
    "all_to_all, same outputs",
    "reduce_scatter, into another input",
    "scatter, into another input",
    "all_to_all_single, into its input",
}


def wrong_and_refused(named: str) -> tuple[set[str], set[str]]:
    """Return the cases with wrong numbers, and the refused cases, of any of two ranks."""
    ranks = Cluster(2).run(of_gloo_and_of_the_kit, named).results
    wrong = {name for each in ranks for name, (is_wrong, _) in each.items() if is_wrong}
    return wrong, {name for each in ranks for name, (_, refused) in each.items() if refused}


@pytest.mark.processes
def test_the_kit_refuses_exactly_the_layouts_that_gloo_moves_wrongly() -> None:
    wrong, refused = wrong_and_refused("cases")
    assert wrong == refused
    assert len(refused) > 50
    assert wrong_and_refused("in_channels_last") == (set(), set())


@pytest.mark.processes
def test_the_kit_refuses_calls_that_overwrite_their_own_tensors() -> None:
    """An input in the memory of an output is sometimes sent before the output is written."""
    wrong, refused = wrong_and_refused("calls_that_share_memory")
    assert refused == OVERWRITTEN
    assert wrong <= refused
    assert {name for name in OVERWRITTEN if "outputs" in name} <= wrong


def columns(*shape: int) -> torch.Tensor:
    """Return a tensor with gaps."""
    return torch.ones(*shape, 2)[..., 0]


def wrong_calls() -> Iterator[tuple[str, Any]]:
    """Yield calls; each rank refuses all calls."""
    x, other = torch.ones(2), 1 - dist.get_rank()
    two = torch.ones(4)
    yield "all_reduce", lambda: dist.all_reduce(columns(2))
    yield "all_reduce", lambda: dist.all_reduce(columns(2), async_op=True)
    yield "all_reduce", lambda: dist.all_reduce(columns(2), group=dist.new_group([0, 1]))
    yield "all_reduce", lambda: dist.all_reduce(torch.ones(1).expand(3))
    yield "broadcast", lambda: dist.broadcast(columns(2), 0)
    yield "reduce", lambda: dist.reduce(columns(2), 1)
    inputs = [x, x] if other == 1 else None
    yield "scatter", lambda: dist.scatter(columns(2), inputs)
    yield "reduce_scatter", lambda: dist.reduce_scatter(columns(2), [x, x])
    yield "all_to_all_single", lambda: dist.all_to_all_single(columns(2), torch.ones(2))
    yield "all_to_all_single", lambda: dist.all_to_all_single(torch.ones(2), columns(2))
    yield "send", lambda: dist.send(columns(2), other)
    yield "recv", lambda: dist.recv(columns(2), other)
    yield "recv", lambda: dist.recv(columns(2))
    yield "isend", lambda: dist.isend(torch.ones(3, 2).t(), other)
    yield "irecv", lambda: dist.irecv(columns(2), other)
    yield "all_gather", lambda: dist.all_gather([torch.empty(2)] * 2, x)
    yield "all_to_all", lambda: dist.all_to_all([torch.empty(2)] * 2, [x, x])
    yield "reduce_scatter", lambda: dist.reduce_scatter(two[1:3], [two[:2], two[2:]])
    yield "all_to_all_single", lambda: dist.all_to_all_single(two, two)


def refuses_wrong_calls() -> None:
    backend = dist.get_backend()
    for op, call in wrong_calls():
        if backend == "nccl" and op == "isend":  # NCCL sends a dense tensor
            continue
        with pytest.raises(ValueError, match=rf"^{op}: .*(x\.contiguous\(\)|own memory)"):
            call()
    total = torch.ones(2)
    dist.all_reduce(total)  # works after the refused calls
    assert total.tolist() == [2, 2]


def nccl_refuses_more() -> None:
    x = torch.arange(6.0).view(2, 3)
    for call in (
        lambda: dist.all_reduce(x.t()),
        lambda: dist.all_gather([torch.empty(3, 2) for _ in range(2)], x.t()),
        lambda: dist.all_gather_into_tensor(torch.empty(6, 2), x.t()),
        lambda: dist.all_gather_into_tensor(columns(4), torch.ones(2)),
        lambda: dist.reduce_scatter_tensor(torch.empty(3), columns(6)),
    ):
        with pytest.raises(ValueError, match=r"has to be contiguous.*x\.contiguous\(\)"):
            call()


def does_right_calls() -> None:
    """Make calls similar to the wrong calls, with right numbers."""
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    for named in ("in_channels_last",):
        for name, case in getattr(layouts, named)():
            came, promised = case()
            assert all(map(torch.equal, came, promised)), name
    for name, case in layouts.calls_that_share_memory():
        if "in place" in name or "nothing" in name or "one tensor" in name:
            came, promised = case()
            assert all(map(torch.equal, came, promised)), name
    for x in (
        torch.ones(3, 4)[1:],  # a contiguous view
        torch.ones(4, 3)[:1].t(),  # a row
        torch.ones(1, 2)[:, :1],  # an element
        torch.ones(1).expand(1, 1),
        torch.ones(()),
        torch.ones(4, 4)[:0],
        torch.ones(4, 4)[:, :0],  # no element
        torch.ones(2, 3, 1, 1).contiguous(memory_format=torch.channels_last),
    ):
        dist.all_reduce(x)
        assert (x == 2).all()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 2, 3))
    model = DistributedDataParallel(model.to(memory_format=torch.channels_last))
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    model(images).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    message, into = torch.full((2,), 1.0 * rank), torch.zeros(2, 2)
    sending = dist.isend(message, other)
    dist.recv(into[0], other)
    sending.wait()
    assert into[0].tolist() == [other, other]


def does_right_calls_of_gloo() -> None:
    """Make the right calls, and calls with tensors that gloo copies and NCCL refuses."""
    does_right_calls()
    dist.all_reduce(x := torch.full((2, 3), 1.0 + dist.get_rank()).t())
    assert (x == 3).all()
    matrix = torch.zeros(3, 2)
    dist.all_gather(list(matrix.unbind(1)), 1.0 + dist.get_rank() + 0 * columns(3))
    assert matrix.tolist() == [[1, 2]] * 3


def nccl_sends_channels_last() -> None:
    does_right_calls()
    rank = dist.get_rank()
    x = layouts.channels_last(torch.arange(24.0).view(1, 2, 3, 4))
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(came := torch.zeros_like(x), 0)
        assert came.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(came, x)


@pytest.mark.processes
@in_every_way
def test_wrong_calls_are_refused(way: str) -> None:
    run(way, 2, refuses_wrong_calls)


@pytest.mark.processes
@in_every_way
def test_right_calls_are_not(way: str) -> None:
    run(way, 2, does_right_calls_of_gloo)


@pytest.mark.processes
@pytest.mark.parametrize(
    "function", [nccl_refuses_more, refuses_wrong_calls, nccl_sends_channels_last]
)
def test_a_script_that_asks_for_nccl(function: Any) -> None:
    run("ddpkit run", 2, function, backend="nccl")


def reduces_a_column() -> None:
    x = torch.ones(2, 2)
    dist.all_reduce(x[:, 0])


@pytest.mark.processes
@in_every_way
def test_the_error_names_the_call_the_line_and_the_remedy(way: str) -> None:
    with pytest.raises(RankError) as caught:
        run(way, 2, reduces_a_column)
    # the text names one rank if the run ends before both ranks have raised
    text = str(caught.value)
    assert (
        " raised ValueError: all_reduce: the tensor has to be contiguous, but has shape [2] and "
        "strides [2], so the call would move wrong elements of the memory. Call all_reduce with "
        "y = x.contiguous(), and then x.copy_(y)."
    ) in text
    assert ": dist.all_reduce(x[:, 0])" in text


def reduces_in_two_orders() -> None:
    x = torch.ones(2, 3, 4, 4)
    if dist.get_rank() == 1:
        x = layouts.channels_last(x)
    dist.all_reduce(x)
    dist.barrier()


def sends_in_one_order_and_receives_in_another() -> None:
    x = torch.ones(2, 3, 4, 4)
    if dist.get_rank() == 0:
        dist.send(layouts.channels_last(x), 1)
    else:
        dist.recv(x, 0)
    dist.barrier()


@pytest.mark.processes
@in_every_way
def test_ranks_whose_tensors_lie_in_different_orders(way: str) -> None:
    with pytest.raises(Mismatch) as caught:
        run(way, 2, reduces_in_two_orders)
    assert caught.value.kind == "strides"
    text = str(caught.value)
    assert "rank 1 calls all_reduce(float32[2, 3, 4, 4] with strides [48, 1, 12, 3])" in text
    assert "x.contiguous()" in text


@pytest.mark.processes
def test_messages_whose_ends_lie_in_different_orders() -> None:
    with pytest.raises(Mismatch) as caught:
        run("ddpkit run", 2, sends_in_one_order_and_receives_in_another, backend="nccl")
    assert caught.value.kind == "message"
    assert "sends float32[2, 3, 4, 4] with strides [48, 1, 12, 3] to rank 1" in str(caught.value)
    assert "x.contiguous()" in str(caught.value)


def test_a_list_filled_up_with_one_tensor_is_allowed_on_nccl_alone() -> None:
    """Muon fills up the list of a step's last parameters: `[t] * missing`."""
    own, fill = torch.ones(2), torch.ones(2)
    shared_memory.check("all_gather", [[[own, fill, fill]], [own]], 0, 3, True)
    for outputs, as_nccl in (([own, fill, fill], False), ([fill] * 3, True)):
        with pytest.raises(ValueError, match="share memory"):
            shared_memory.check("all_gather", [[outputs], [own]], 0, 3, as_nccl)
