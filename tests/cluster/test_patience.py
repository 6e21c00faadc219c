"""A run that is slow but not stuck is never called a deadlock."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks._load import burning
from ddpkit import Cluster


def computes(seconds):
    end = time.monotonic() + seconds
    x = torch.randn(200, 200)
    while time.monotonic() < end:
        x = (x @ x).softmax(0)


@pytest.mark.slow
def test_one_rank_computes_or_sleeps_while_the_others_wait():
    def slow():
        rank = dist.get_rank()
        if rank == 0:
            time.sleep(4)
            dist.send(torch.ones(1), 1)
        elif rank == 1:
            dist.recv(torch.ones(1), 0)
            computes(4)
        total = torch.ones(3)
        dist.all_reduce(total)
        return total.tolist()

    assert Cluster(3).run(slow).results == [[3.0] * 3] * 3


@pytest.mark.slow
def test_one_rank_sleeps_inside_backward_and_in_a_thread(cluster):
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if dist.get_rank() == 1:
                time.sleep(4)
            return gradient

    def slow():
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        Slow.apply(model(torch.ones(2, 4))).sum().backward()
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1), 1)
            dist.send(torch.ones(1), 1)
        else:
            # The main thread waits for rank 0, and rank 0 waits for the second thread of this rank.
            def later():
                time.sleep(4)
                dist.send(torch.ones(1), 0)

            thread = threading.Thread(target=later)
            thread.start()
            dist.recv(torch.ones(1), 0)
            thread.join()
        return True

    assert cluster.run(slow).results == [True, True]


@pytest.mark.slow
def test_ping_pong_with_pauses_and_polling(cluster):
    def play():
        rank, ball = dist.get_rank(), torch.zeros(1)
        for _ in range(4):
            if rank == 0:
                time.sleep(0.7)
                dist.send(ball, 1)
                dist.recv(ball, 1)
            else:
                dist.recv(ball, 0)
                ball += 1
                time.sleep(0.7)
                dist.send(ball, 0)
        if rank == 1:
            time.sleep(3)
        work = dist.all_reduce(ball, async_op=True)
        while not work.is_completed():
            if rank == 0:
                time.sleep(0.001)
        return ball.item()

    assert cluster.run(play).results == [8.0, 8.0]


@pytest.mark.slow
def test_many_bytes_on_starved_ranks():
    def reduce():
        big = torch.ones(50_000_000)  # 200 MB
        for _ in range(2):
            dist.all_reduce(big)
        return big[::10_000_000].tolist()

    with burning(4):
        assert Cluster(4).run(reduce).results == [[16.0] * 5] * 4


@pytest.mark.slow
def test_a_rank_that_holds_the_gil_after_it_waited(cluster):
    """The rank's last status, "waits", is old by then, and must not count."""

    def slow():
        import ctypes

        if dist.get_rank() == 0:
            time.sleep(2.5)
            dist.send(torch.ones(1), 1)
            dist.recv(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
            ctypes.PyDLL(None).sleep(4)
            dist.send(torch.ones(1), 0)
        return True

    assert cluster.run(slow).results == [True, True]
