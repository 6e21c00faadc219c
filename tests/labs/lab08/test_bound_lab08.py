"""A bound of 0 is synchronous: no worker pulls before all workers have pushed."""

from random import Random

import pytest
import torch

from ddpkit.answers.lab08 import Bounded, Synchronous

WORKERS = [3, 4, 6]


def both(lr=0.5):
    """Return a server of each rule: one applies the mean, the bounded one each gradient."""

    def mean(flat, gradient):
        flat.sub_(lr * gradient)

    def each(flat, gradient):
        flat.sub_(lr / len(WORKERS) * gradient)

    start = torch.ones(4, dtype=torch.float64)
    return Synchronous(start.clone(), mean, WORKERS), Bounded(start.clone(), each, WORKERS, 0)


@pytest.mark.parametrize("seed", range(30))
def test_both_rules_let_the_same_workers_pull(seed):
    """Forty events come in random order: pulls, pushes, and workers that are done."""
    rng, servers = Random(seed), both()
    computing, active = set(), set(WORKERS)
    for _ in range(40):
        idle = sorted(active - computing)
        may = {worker: [server.may_pull(worker) for server in servers] for worker in idle}
        assert all(one == other for one, other in may.values())
        events = [("pull", worker) for worker in idle if may[worker][0]]
        events += [("push", worker) for worker in computing]
        events += [("done", worker) for worker in idle if len(active) > 1 and rng.random() < 0.05]
        what, worker = rng.choice(sorted(events))
        if what == "done":
            active.remove(worker)
        elif what == "pull":
            computing.add(worker)
        else:
            computing.remove(worker)
        arguments = [torch.ones(4, dtype=torch.float64)] if what == "push" else []
        for server in servers:
            getattr(server, what)(worker, *arguments)


def test_both_rules_end_with_the_same_parameters():
    """All workers pull in each round, and push in any order."""
    rng, (synchronous, bounded) = Random(8), both()
    for number in range(5):
        old = [server.pull(WORKERS[0]).clone() for server in (synchronous, bounded)]
        assert torch.allclose(*old, rtol=1e-12)
        for server in (synchronous, bounded):
            for worker in WORKERS:
                server.pull(worker)
            for worker in rng.sample(WORKERS, len(WORKERS)):
                server.push(worker, old[0] * worker + number)
    assert torch.allclose(synchronous.flat, bounded.flat, rtol=1e-12)
