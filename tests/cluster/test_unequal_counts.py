"""Ranks that call a collective different numbers of times: the error counts the calls."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Deadlock
from tests.ways import WAYS, run

pytestmark = pytest.mark.processes
in_every_way = pytest.mark.parametrize("way", WAYS)


def sentence(error: Deadlock) -> str:
    """Return the reason in an error's text, as one line."""
    return " ".join(str(error).partition("Why: ")[2].split())


def calls_once_more_on_rank_0() -> None:
    dist.broadcast(torch.ones(2), 0)
    for _ in range(4 - dist.get_rank()):
        dist.all_reduce(torch.ones(2))


@in_every_way
def test_one_call_more(way: str) -> None:
    with pytest.raises(Deadlock) as caught:
        run(way, 2, calls_once_more_on_rank_0)
    assert sentence(caught.value) == (
        "rank 0 waits in its 4th all_reduce for rank 1, which has returned after 3."
    )
    assert caught.value.made == {0: 4, 1: 3}


def calls_twice_more_and_waits_for_the_first() -> None:
    group = dist.new_group([0, 1])
    works = [
        dist.all_reduce(torch.ones(2), group=group, async_op=True)
        for _ in range(5 - 2 * dist.get_rank())
    ]
    for work in works:
        work.wait()


def test_a_wait_for_an_earlier_call_than_the_last() -> None:
    with pytest.raises(Deadlock) as caught:
        run("real", 2, calls_twice_more_and_waits_for_the_first)
    assert caught.value.made == {0: 4, 1: 3}


def destroys_the_groups_too_early() -> None:
    group = dist.new_group([0, 1])
    for _ in range(4 - dist.get_rank()):
        dist.all_reduce(torch.ones(2), group=group)
    dist.destroy_process_group(group)
    dist.destroy_process_group()


@in_every_way
def test_a_rank_that_has_destroyed_its_groups(way: str) -> None:
    with pytest.raises(Deadlock) as caught:
        run(way, 2, destroys_the_groups_too_early)
    assert sentence(caught.value) == (
        "rank 0 waits in its 4th all_reduce for rank 1, which has returned after 3."
    )


def has_one_batch_more_on_rank_1() -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(2 + dist.get_rank()):
        model(torch.ones(3, 4)).sum().backward()


@in_every_way
def test_one_batch_more(way: str) -> None:
    with pytest.raises(Deadlock) as caught:
        run(way, 2, has_one_batch_more_on_rank_1)
    made = caught.value.made
    assert made[1] == made[0] + 1 > 2
    assert f"returned after {made[0]}." in sentence(caught.value)


def never_calls_on_rank_1() -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2))


@in_every_way
def test_no_call(way: str) -> None:
    with pytest.raises(Deadlock) as caught:
        run(way, 2, never_calls_on_rank_1)
    assert sentence(caught.value) == (
        "rank 0 waits for rank 1, which has returned without calling all_reduce."
    )
