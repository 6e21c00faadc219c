"""The data of an answer on real ranks that a check sees."""

import pytest
import torch
import torch.distributed as dist

from ddpkit import RankError
from ddpkit.exercises.ranks import call, together
from ddpkit.protocol.per_rank import PerRank

pytestmark = pytest.mark.processes


def test_a_call_is_what_it_returned_and_sent():
    def to_the_right(x, scale):
        if dist.get_rank() == 0:
            dist.send(x * scale, dst=1)
            return None
        y = torch.empty_like(x)
        dist.recv(y, src=0)
        return y

    did = call(to_the_right, PerRank([torch.ones(3), torch.zeros(3)]), 7.0, world_size=2)
    assert did.returned[0] is None
    assert did.returned[1].tolist() == [7.0] * 3
    assert (did.bytes, did.messages, did.to, did.rounds) == ([12, 0], [1, 0], "0→1", 1)
    assert did.kept
    assert did.collectives == []


def test_calls_of_one_run_are_told_apart():
    def answer(x):
        if x.numel() == 1:
            dist.all_reduce(x)
        elif dist.get_rank():
            dist.send(x, dst=0)
        else:
            dist.recv(x, src=1)

    pairs = [[(torch.full((length,), float(rank)),) for rank in (0, 1)] for length in (1, 2, 5)]
    one, two, five = (did() for did in together(answer, pairs))
    assert (one.collectives, one.to, one.kept) == (["all_reduce"], "nobody", False)
    assert (two.bytes, two.collectives) == ([0, 8], [])
    assert (five.bytes, five.kept) == ([0, 20], False)  # recv wrote into rank 0's x


def test_what_one_call_raises_all_of_the_run_raise_and_it_runs_once(tmp_path):
    def answer(path):
        with open(path, "a") as file:
            file.write("called\n")
        raise ValueError("no")

    path = tmp_path / "calls"
    for did in together(answer, [[(str(path),)], [(str(path),)]], files=True):
        with pytest.raises(RankError, match="no"):
            did()
    assert path.read_text() == "called\n"


def test_an_empty_message_is_none():
    def answer():
        other = 1 - dist.get_rank()
        request = dist.isend(torch.ones(0), other)
        dist.recv(torch.ones(0), other)
        request.wait()

    did = call(answer, world_size=2)
    assert (did.messages, did.to) == ([0, 0], "nobody")


@pytest.mark.parametrize("start", ["isend", "irecv"])
def test_a_message_that_nobody_waits_for_is_refused(start):
    """Such a message arrives only by luck, and no verdict may depend on luck."""

    def answer():
        x = torch.ones(3)
        handle = dist.irecv(x, src=0) if dist.get_rank() else dist.isend(x, dst=1)
        if dist.get_rank() == (start == "isend"):
            handle.wait()

    with pytest.raises(RankError, match=f"the {start} in line [0-9]+ was never waited for"):
        call(answer, world_size=2)


def test_collectives_beside_messages_are_named_with_the_rounds():
    def answer(collective):
        if collective:
            dist.barrier()
        else:
            other = 1 - dist.get_rank()
            handle = dist.isend(torch.ones(1), other)
            dist.recv(torch.ones(1), other)
            handle.wait()

    def both():
        answer(False)
        answer(True)

    assert call(answer, True, world_size=2).rounds == 0
    assert call(answer, False, world_size=2).rounds == 1
    assert call(both, world_size=2).rounds == "1 and barrier"
