"""Lab 03's checks: they count as the schedules do, and take right answers of other makes."""

import sys

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from ddpkit.lessons import find, judge
from ddpkit.lessons._lab03_question import latencies
from ddpkit.lessons.verdict import verdict_text
from ddpkit.simulate import ALL_REDUCE, schedule, time_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import tests


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ALL_REDUCE)
def test_latencies_in_a_row_are_the_rounds_of_the_schedule(name, n):
    plan = schedule(name, n, length=16)
    assert latencies(time_of(plan, "1 Gbit/s, 200 us").spans) == plan.rounds


def exchange(outgoing, to, incoming, source):
    """As some write it: a batch, without what is empty."""
    ops = [dist.P2POp(dist.isend, outgoing, to)] if outgoing.numel() else []
    ops += [dist.P2POp(dist.irecv, incoming, source)] if incoming.numel() else []
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()


def all_to_all(x):
    """Receives first, then all in one tensor."""
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = torch.empty((n, *x.shape), dtype=x.dtype)
    parts[rank] = x
    others = [each for each in range(n) if each != rank]
    works = [dist.irecv(parts[each], each) for each in others]
    works += [dist.isend(parts[rank], each) for each in others]
    for work in reversed(works):
        work.wait()
    return parts.sum(0, dtype=x.dtype)


def round_robin(x):
    """Receives are posted first; a send may block then."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = x.contiguous()
    total = x.clone()
    for far in reversed(range(1, n)):
        received = torch.empty_like(x)
        receiving = dist.irecv(received, (rank - far) % n)
        dist.send(x, (rank + far) % n)
        receiving.wait()
        total = total + received
    return total


def master_worker(x):
    """Takes in the workers in any order, serves them one by one."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = x.contiguous()
    if rank:
        total = torch.empty_like(x)
        dist.isend(x, 0).wait()
        dist.irecv(total, 0).wait()
        return total
    room = [torch.empty_like(x) for _ in range(1, n)]
    for work in [dist.irecv(each, worker) for worker, each in enumerate(room, 1)]:
        work.wait()
    total = sum(room, x.clone())
    for worker in reversed(range(1, n)):
        dist.send(total, worker)
    return total


def tree(x):
    """Another binomial tree than the kit's: neighbours first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total, distances = x.contiguous().clone(), [2**k for k in range((n - 1).bit_length())]
    for distance in distances:
        if rank % (2 * distance) == distance:
            dist.send(total, rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < n:
            received = torch.empty_like(total)
            dist.recv(received, rank + distance)
            total += received
    for distance in reversed(distances):
        if rank % (2 * distance) == distance:
            dist.recv(total, rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < n:
            dist.send(total, rank + distance)
    return total


def butterfly(x):
    """As in MPICH: the first ranks give in pairs, even ones to odd ones; the farthest first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total = x.contiguous().clone()
    received, doubled = torch.empty_like(total), 2 ** (n.bit_length() - 1)
    beyond = n - doubled
    if rank < 2 * beyond and rank % 2 == 0:
        dist.send(total, rank + 1)
        dist.recv(total, rank + 1)
        return total
    if rank < 2 * beyond:
        dist.recv(received, rank - 1)
        total += received
    mine = rank // 2 if rank < 2 * beyond else rank - beyond
    for distance in reversed([2**k for k in range(doubled.bit_length() - 1)]):
        other = mine ^ distance
        other = 2 * other + 1 if other < beyond else other + beyond
        exchange(total, other, received, other)
        total += received
    if rank < 2 * beyond:
        dist.send(total, rank - 1)
    return total


def ring(x):
    """Cut by torch.chunk, begun at another chunk, and nothing sent of empty ones."""
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = x.reshape(-1).clone()
    chunks = list(flat.chunk(n)) if len(flat) else []
    chunks += [flat[:0]] * (n - len(chunks))
    for step in range(2 * (n - 1)):
        outgoing, incoming = chunks[(rank + 1 - step) % n], chunks[(rank - step) % n]
        received = torch.empty_like(incoming)
        exchange(outgoing, (rank + 1) % n, received, (rank - 1) % n)
        incoming.copy_(incoming + received if step < n - 1 else received)
    return flat.view(x.shape)


@pytest.mark.parametrize(
    "answer",
    [all_to_all, round_robin, master_worker, tree, butterfly, ring],
    ids=lambda f: f.__name__,
)
def test_a_right_answer_of_another_make_passes(answer):
    verdict = judge(find(answer.__name__), answer)
    assert verdict, verdict_text(verdict)
