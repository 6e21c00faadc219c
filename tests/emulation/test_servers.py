"""Parameter servers on real ranks: times of the simulator, and equal in every run."""

import math
from random import Random

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, busy
from ddpkit.answers.lab08 import Bounded, Synchronous, done, pull, push, serve
from ddpkit.errors import Mismatch
from ddpkit.simulate import parameter_server

pytestmark = pytest.mark.processes
LINK, LENGTH, COMPUTE = "1 Gbit/s, 200 us", 250_000, 20_000_000


def compute_ns(worker, number):
    return round(Random(f"{worker} {number}").uniform(10e6, 30e6))


def job(rule, servers, rounds, length, compute):
    rank, ranks = dist.get_rank(), list(range(dist.get_world_size()))
    flat, servers, workers = torch.zeros(length), ranks[:servers], ranks[servers:]
    if rank in servers:
        mine = flat.tensor_split(len(servers))[rank].clone()
        server = rule(mine, lambda old, gradient: old.sub_(gradient), workers)
        serve(server, len(mine), workers)
        return getattr(server, "staleness", [])
    for number in range(rounds):
        pull(flat, servers)
        busy((compute(rank, number) if callable(compute) else compute) / 1e9)
        push(flat, servers)
    done(servers)
    return None


def served(rule, workers, servers, rounds, length=LENGTH, compute=COMPUTE):
    cluster = Cluster(workers + servers, link=LINK, speed=math.inf)
    return cluster.run(job, rule, servers, rounds, length, compute)


def last_push_ns(run, servers):
    data = [s.end_ns for s in run.trace.spans if s.rank < servers and s.is_recv and s.bytes > 8]
    return max(data) - run.trace.start_ns


@pytest.mark.filterwarnings("ignore:Cluster")
@pytest.mark.parametrize(("workers", "servers", "rounds"), [(1, 1, 2), (4, 4, 3), (16, 1, 1)])
def test_measured_is_simulated(workers, servers, rounds):
    run = served(Synchronous, workers, servers, rounds)
    told = parameter_server(workers, servers, 4 * LENGTH, COMPUTE, LINK, rounds=rounds)
    assert last_push_ns(run, servers) == pytest.approx(told.done_ns, rel=0.001)


@pytest.mark.parametrize("bound", [2, math.inf])
def test_a_run_without_rounds_is_the_same_in_every_run(bound):
    """Arrivals, the ages of gradients, and times are equal in two runs and in the simulator."""

    def rule(flat, update, workers):
        return Bounded(flat, update, workers, bound)

    runs = [served(rule, 3, 1, rounds=8, length=10_000, compute=compute_ns) for _ in range(2)]
    told = parameter_server(3, 1, 40_000, compute_ns, LINK, bound=bound, rounds=8)
    assert runs[0].results[0] == runs[1].results[0] == list(told.ages)
    assert last_push_ns(runs[0], 1) == last_push_ns(runs[1], 1) == told.done_ns
    ends = [[(s.rank, s.name, s.start_ns, s.end_ns) for s in run.trace.spans] for run in runs]
    assert sorted(ends[0]) == sorted(ends[1])


def a_wrong_size():
    if dist.get_rank():
        dist.send(torch.tensor([0]), 0, tag=1)
        dist.send(torch.zeros(3 + (dist.get_rank() == 2)), 0, tag=2)
        return
    for _ in range(2):
        worker = dist.recv(torch.zeros(1, dtype=torch.int64), tag=1)
        dist.recv(torch.zeros(3), worker, tag=2)


@pytest.mark.parametrize("link", [None, LINK])
def test_a_message_of_a_wrong_size_is_explained_beside_receives_from_anybody(link):
    with pytest.raises(Mismatch, match=r"rank 2 sends float32\[4\] to rank 0 with tag 2"):
        Cluster(3, link=link).run(a_wrong_size)
