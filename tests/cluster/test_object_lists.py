"""Collectives of objects on which ranks disagree: the error counts objects, and names all ranks."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist

from ddpkit import Deadlock, Mismatch
from ddpkit.cluster import disagreement, phrases
from ddpkit.protocol.call import Call
from tests.ways import WAYS, run

in_every_way = pytest.mark.parametrize("way", WAYS)


def names_every_rank(text: str) -> bool:
    """True if the text has a line for each of three ranks: its call, or no call so far."""
    lines = re.findall(r"^  ranks? ([\d, ]+) (?:calls?|ha(?:s|ve) not called it yet)", text, re.M)
    return sorted(", ".join(lines).split(", ")) == ["0", "1", "2"]


def broadcasts_lists_of_two_lengths() -> None:
    objects = ["a", "b"] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(objects, src=0)


@pytest.mark.processes
@in_every_way
def test_lists_of_two_lengths(way: str) -> None:
    with pytest.raises(Mismatch) as caught:
        run(way, 3, broadcasts_lists_of_two_lengths)
    text = str(caught.value)
    assert "rank 0 calls broadcast_object_list(2 objects, src=0)" in text
    assert " broadcast_object_list(1 object, src=0)" in text
    assert names_every_rank(text)
    assert text.endswith("Every rank must pass a list of the same number of objects.")


def gathers_on_one_rank_and_broadcasts_elsewhere() -> None:
    if dist.get_rank() == 0:
        dist.all_gather_object([None] * 3, "x")
    else:
        dist.broadcast(torch.ones(1), src=1)


@pytest.mark.processes
@in_every_way
def test_objects_on_one_rank_and_a_tensor_elsewhere(way: str) -> None:
    with pytest.raises(Mismatch) as caught:
        run(way, 3, gathers_on_one_rank_and_broadcasts_elsewhere)
    text = str(caught.value)
    assert "rank 0 calls all_gather_object()" in text
    assert " broadcast(float32[1], src=1)" in text
    assert names_every_rank(text)
    assert text.endswith("Every rank must call the same collectives in the same order.")


def sends_two_objects_for_one() -> None:
    if dist.get_rank() == 0:
        dist.send_object_list(["a", "b"], dst=1)
    else:
        dist.recv_object_list([None], src=0)


@pytest.mark.processes
def test_a_message_of_too_many_objects() -> None:
    with pytest.raises(Mismatch) as caught:
        run("real", 2, sends_two_objects_for_one)
    text = str(caught.value)
    assert "rank 0 sends 2 objects to rank 1" in text
    assert "rank 1 receives 1\n" in text


def waits_alone_for_objects() -> None:
    if dist.get_rank() == 0:
        dist.broadcast_object_list([1, 2], src=0)


@pytest.mark.processes
def test_a_rank_that_waits_for_objects() -> None:
    with pytest.raises(Deadlock) as caught:
        run("real", 2, waits_alone_for_objects)
    assert "rank 0 waits in broadcast_object_list(2 objects, src=0)" in str(caught.value)
    assert "without calling broadcast_object_list." in " ".join(str(caught.value).split())


def broadcasts_objects_once_more() -> None:
    for _ in range(3 - dist.get_rank()):
        dist.broadcast_object_list([1, 2], src=0)


@pytest.mark.processes
def test_a_rank_that_broadcasts_objects_once_more() -> None:
    with pytest.raises(Deadlock) as caught:
        run("real", 2, broadcasts_objects_once_more)
    words = " ".join(str(caught.value).split())
    assert "rank 0 waits in its 3rd broadcast_object_list for rank 1" in words
    assert "which has returned after 2." in words


def gathers_objects_of_many_sizes() -> None:
    everything = [None] * 3
    dist.all_gather_object(everything, "x" * (1 + dist.get_rank()))
    assert everything == ["x", "xx", "xxx"]
    objects = [1, "two"] if dist.get_rank() == 0 else [None, None]
    dist.broadcast_object_list(objects, src=0)
    assert objects == [1, "two"]


@pytest.mark.processes
@in_every_way
def test_objects_of_different_sizes_agree(way: str) -> None:
    run(way, 3, gathers_objects_of_many_sizes)


def test_a_rank_that_has_yet_to_come_is_named() -> None:
    calls = {rank: Call("all_reduce", seq=1, shape=(2 + rank,), dtype="float32") for rank in (0, 1)}
    assert "\n  rank 2 has not called it yet\n" in disagreement.mismatch("shape", calls, {2})
    assert "\n  ranks 2, 3 have not called it yet\n" in disagreement.mismatch(
        "shape", calls, {2, 3}
    )


@pytest.mark.parametrize(
    ("via", "dtype", "shape", "text"),
    [
        ("broadcast_object_list", "int64", (1,), "broadcast_object_list(1 object, src=0)"),
        ("broadcast_object_list", "uint8", (30,), "broadcast_object_list(src=0)"),
        ("scatter_object_list", "int64", (1,), "scatter_object_list(src=0)"),
        ("helper", "int64", (1,), "broadcast(int64[1], src=0) inside helper()"),
    ],
)
def test_a_call_with_objects(via: str, dtype: str, shape: tuple[int, ...], text: str) -> None:
    call = Call("broadcast", seq=1, via=via, dtype=dtype, shape=shape, root=0)
    assert phrases.describe(call) == text
