"""Ranks that torchrun restarts meet in an unused part of torchrun's store."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from ddpkit.cluster.torchrun import attempt
from ddpkit.errors import ClusterError


def met(store, size, first=0):
    """Return the store parts of all ranks, which ask one after the other, rank `first` first."""
    order = [(first + k) % size for k in range(size)]
    with ThreadPoolExecutor(size) as pool:
        parts = [pool.submit(attempt.own_part, store, rank, size) for rank in order]
        return [part.result(20) for part in parts]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_an_attempt_does_not_read_what_the_one_before_has_left(first):
    store = dist.HashStore()
    dead = met(store, 3)
    dead[0].set("rank 0", "an address of old")
    parts = met(store, 3, first)
    parts[0].set("rank 0", "an address")
    assert [part.get("rank 0") for part in parts] == [b"an address"] * 3
    parts[2].set("new", "")
    assert not dead[1].check(["new"])
    assert met(store, 1)[0].check(["rank 0"]) is False, "fewer ranks than before"


def test_who_died_before_it_was_answered_keeps_nobody():
    store = dist.HashStore()
    store.set("ddpkit/ask1", "a word of old")
    store.set("ddpkit/ask2", "another")
    parts = met(store, 3)
    parts[1].set("here", "")
    assert all(part.check(["here"]) for part in parts)


def test_a_rank_that_never_comes_is_no_riddle():
    store = dist.HashStore()
    store.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(ClusterError, match="some ranks that torchrun started"):
        attempt.own_part(store, 0, 2)


@pytest.mark.parametrize(
    ("counted", "said"), [([0, 0], ""), ([1, 1], "1 of 2"), ([0, 2, 1], "2 of 2")]
)
def test_the_attempt_is_said(monkeypatch, counted, said):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    assert attempt.in_words(counted) == said
