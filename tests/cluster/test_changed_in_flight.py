"""A tensor that code changes before the wait: a warning after the run, an error in strict mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster, RankError
from tests.ways import WAYS, run, words

pytestmark = pytest.mark.processes
in_every_way = pytest.mark.parametrize("way", WAYS)


def other() -> int:
    return 1 - dist.get_rank()


def changes_an_isend() -> None:
    x, y = torch.ones(4), torch.zeros(4)
    work = dist.isend(x, other())
    arriving = dist.irecv(y, other())
    x += 1
    work.wait()
    arriving.wait()


def changes_an_all_reduce() -> None:
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    x /= 2
    work.wait()


def changes_what_is_to_come() -> None:
    x, y = torch.ones(4), torch.zeros(4)
    arriving = dist.irecv(y, other())
    y.zero_()
    dist.isend(x, other()).wait()
    arriving.wait()


def changes_an_input_of_all_gather() -> None:
    x = torch.ones(4)
    parts = [torch.zeros(4) for _ in range(2)]
    future = dist.all_gather(parts, x, async_op=True)
    x.fill_(9)
    future.get_future().wait()


def changes_afterwards() -> None:
    x, y = torch.ones(4), torch.zeros(4)
    work = dist.isend(x, other())
    arriving = dist.irecv(y, other())
    z = x + 1
    work.wait()
    x += 1
    arriving.wait()
    y += z


def changes_the_other_half() -> None:
    buffer, y = torch.ones(8), torch.zeros(4)
    work = dist.isend(buffer[:4], other())
    arriving = dist.irecv(y, other())
    buffer[4:] += 1
    work.wait()
    arriving.wait()


def overlaps_gradients() -> None:
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    works = []

    def post(parameter: torch.Tensor) -> None:
        parameter.grad /= 2
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in layers.parameters():
        parameter.register_post_accumulate_grad_hook(post)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(3):
        layers(torch.ones(2, 4)).sum().backward()
        while works:
            works.pop().wait()
        optimizer.step()
        optimizer.zero_grad()


def gathers_into_parts() -> None:
    x = torch.ones(4)
    parts = [torch.zeros(4) for _ in range(2)]
    work = dist.all_gather(parts, x, async_op=True)
    work.wait()
    coming = torch.zeros(8)
    exchanged = dist.all_to_all_single(coming, torch.ones(8), async_op=True)
    exchanged.wait()
    future = dist.all_reduce(x, async_op=True).get_future()
    future.then(lambda done: done.value()[0].div_(2)).wait()


def trains_with_torch() -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for _ in range(2 + dist.get_rank()):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    dist.all_gather_object([None, None], "word")


WRONG: dict[Callable[[], None], tuple[str, int]] = {
    changes_an_isend: ("isend", 2),
    changes_an_all_reduce: ("all_reduce", 2),
    changes_what_is_to_come: ("irecv", 2),
    changes_an_input_of_all_gather: ("all_gather", 3),
}
RIGHT = (
    changes_afterwards,
    changes_the_other_half,
    overlaps_gradients,
    gathers_into_parts,
    trains_with_torch,
)


@in_every_way
@pytest.mark.parametrize("function", WRONG, ids=lambda each: each.__name__)
def test_a_change_is_said(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    name, offset = WRONG[function]
    run(way, 2, function)
    said = words(capfd, way)
    line = function.__code__.co_firstlineno + offset
    assert f"The code changed the tensor of the {name} in line {line} (ranks 0, 1) before" in said


@in_every_way
@pytest.mark.parametrize("function", RIGHT, ids=lambda each: each.__name__)
def test_a_right_program_is_not_accused(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, 2, function)
    out, err = capfd.readouterr()
    assert "The code changed" not in out + err


@in_every_way
@pytest.mark.parametrize("function", WRONG, ids=lambda each: each.__name__)
def test_a_strict_run_ends_at_the_change(way: str, function: Callable[[], None]) -> None:
    with pytest.raises(RankError) as caught:
        run(way, 2, function, strict=True)
    name, offset = WRONG[function]
    text = str(caught.value)
    line = function.__code__.co_firstlineno + offset
    assert f"a tensor in flight: the {name} in line {line} still uses the tensor" in text
    assert f"line {line + 1 + (name == 'isend')}" in text


@in_every_way
@pytest.mark.parametrize("function", RIGHT, ids=lambda each: each.__name__)
def test_a_strict_run_of_a_right_program_ends_well(way: str, function: Callable[[], None]) -> None:
    run(way, 2, function, strict=True)


def reads_too_early() -> float:
    y = torch.zeros(4)
    arriving = dist.irecv(y, other())
    total = float(y.sum())
    dist.isend(torch.ones(4), other()).wait()
    arriving.wait()
    return total


def test_only_a_strict_run_sees_a_read() -> None:
    Cluster(2).run(reads_too_early)
    with pytest.raises(RankError, match="the code reads a tensor in flight"):
        Cluster(2, strict=True).run(reads_too_early)
