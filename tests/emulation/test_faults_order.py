"""Orders in which an emulated cluster once hung, or received the wrong message.

Each program must end. The last wait of a rank may be for a lock, for a peer in a callback, or for a
message from any rank.
"""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, RunTimeout
from ddpkit.cluster.local import kept

pytestmark = pytest.mark.processes
LINK = "1 Gbit/s, 200 us"


def run(function, world_size=2, **options):
    return Cluster(world_size, link=LINK, **options).run(function, timeout=120)


def test_a_receive_from_anybody_is_there_before_it_is_waited_for():
    def work():
        first, second = torch.zeros(200_000), torch.zeros(2)
        if dist.get_rank() == 0:
            dist.send(first + 1, 1)
            dist.send(second + 2, 1, tag=1)
            return None
        receive = dist.irecv(first)
        dist.recv(second, 0, tag=1)
        receive.wait()
        return first[0].item(), second[0].item()

    assert run(work).results[1] == (1.0, 2.0)


def test_receives_of_one_tag_take_messages_in_the_order_of_their_posts():
    def work():
        got = [torch.zeros(3) for _ in range(6)]
        if dist.get_rank() == 0:
            for number in range(6):
                dist.send(torch.full((3,), float(number)), 1)
            return None
        works = [dist.irecv(got[0]), dist.irecv(got[1])]
        time.sleep(1)
        works += [dist.irecv(got[2], 0), dist.irecv(got[3])]
        time.sleep(1)
        works += [dist.irecv(got[4], 0), dist.irecv(got[5])]
        for number in (5, 3, 4, 2, 1, 0):
            works[number].wait()
        return [each[0].item() for each in got]

    assert run(work).results[1] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_callback_that_stands_in_a_lock_holds_nobody_up():
    def work():
        event, values = threading.Event(), torch.ones(4)
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        after = future.then(lambda done: (event.wait(60), done.value())[1])
        for _ in range(5):
            dist.all_reduce(values)
        event.set()
        after.wait()
        return values[0].item()

    begun = time.monotonic()
    done = run(work)
    assert done.results == [32.0, 32.0]
    assert "order" in done.trace.facts
    assert time.monotonic() - begun < 50


def test_a_callback_may_wait_for_one_that_its_peer_has_not_attached_yet():
    def work():
        rank, token = dist.get_rank(), torch.zeros(1)

        def sum_again(_):
            dist.all_reduce(values := torch.ones(3))
            return values

        operation = dist.all_reduce(torch.ones(4), async_op=True)
        if rank == 1:
            dist.recv(token, 0)
        after = operation.get_future().then(sum_again)
        if rank == 0:
            time.sleep(0.1)
            dist.send(token, 1)
        return after.wait()[0].item()

    assert run(work).results == [2.0, 2.0]


def test_a_rank_in_a_lock_holds_nobody_up_and_no_clock_runs_away(tmp_path):
    os.mkfifo(door := tmp_path / "door")

    def work():
        token = torch.zeros(1)
        if dist.get_rank() == 0:
            door.open().close()  # waits until the other rank opens it too
            dist.send(token, 1)
        else:
            receive, told = dist.irecv(token, 0), False
            while not receive.is_completed():
                time.sleep(0.001)
                if not told and time.perf_counter() > 0.5:  # never, if the run waited for rank 0
                    door.open("w").close()
                    told = True
        return time.perf_counter()

    done = run(work)
    assert done.trace.facts["order"] == "real time's, in 1 place"
    assert done.results[1] < 600


def test_who_polls_for_what_nobody_sends_meets_the_timeout():
    def work():
        receive = dist.irecv(torch.zeros(1), 1 - dist.get_rank())
        while not receive.is_completed():
            pass

    with pytest.raises(RunTimeout):
        Cluster(2, link=LINK).run(work, timeout=4)


def test_an_operation_that_is_old_is_not_taken_for_done(monkeypatch):
    """The timekeeper forgets only operations that are done."""
    monkeypatch.setattr(kept, "KEPT", 8)

    def work():
        rank, stop, values = dist.get_rank(), torch.zeros(1), torch.ones(1)
        if rank == 1:
            late = dist.irecv(stop, 0, tag=5)
        for _ in range(20):
            dist.all_reduce(values)
        found = late.is_completed() if rank == 1 else None
        dist.barrier()
        if rank == 0:
            dist.send(stop + 1, 1, tag=5)
            return None
        late.wait()
        return found, stop.item()

    assert run(work).results[1] == (False, 1.0)


def test_the_end_of_a_forgotten_operation_is_not_before_its_post(monkeypatch):
    monkeypatch.setattr(kept, "KEPT", 8)

    def work():
        time.sleep(1)
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(30)]
        for each in works:
            each.wait()

    for span in run(work).trace.spans:
        assert 1e9 <= span.start_ns <= span.end_ns


def groups_after_a_broadcast() -> float:
    """Make groups of two, for which ranks 0 and 1 wait in real time until rank 2 has its
    broadcast."""
    x = torch.full((25_000,), float(dist.get_rank()))
    dist.broadcast(x, 0)
    pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3], [0, 2], [1, 3])]
    dist.all_reduce(x, group=pairs[2 + dist.get_rank() % 2])
    return float(x[0])


def test_who_waits_to_make_a_group_holds_nobody_up():
    done = Cluster(4, link=LINK).run(groups_after_a_broadcast, timeout=120)
    assert done.results == [0.0] * 4


def reduce_to_each_in_turn() -> list[float]:
    """Reduce small tensors: a rank's part ends, in emulated time, before gloo has its peers'
    parts."""
    mine = []
    for root in [*range(dist.get_world_size())] * 4:
        x = torch.full((65,), dist.get_rank() + 1.0)
        dist.reduce(x, root)
        if root == dist.get_rank():
            mine.append(float(x[0]))
    return mine


def test_who_waits_in_gloo_for_what_is_over_in_emulated_time_holds_nobody_up():
    done = Cluster(4, link="2.5 Gbit/s, 50 us").run(reduce_to_each_in_turn, timeout=120)
    assert done.results == [[10.0] * 4] * 4
