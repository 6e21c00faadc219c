"""Right answers to lab 03, different from the solution."""

import functools
import math

import numpy as np
import torch
import torch.distributed as dist

from ddpkit import answers
from tests.labs.answers import right


def in_a_batch(sends, receives):
    """Start all messages at once, and wait; a message is a tensor and a rank."""
    ops = [dist.P2POp(dist.isend, *each) for each in sends]
    ops += [dist.P2POp(dist.irecv, *each) for each in receives]
    wait_for(dist.batch_isend_irecv(ops) if ops else [])


def wait_for(works):
    for work in works:
        work.wait()


def exchange(outgoing, to, incoming, source):
    """Send and receive in a batch, without empty tensors."""
    in_a_batch(
        [(outgoing, to)] if outgoing.numel() else [],
        [(incoming, source)] if incoming.numel() else [],
    )


def received_like(x, source):
    got = torch.empty_like(x)
    dist.recv(got, source)
    return got


@right("all_to_all")
def other_all_to_all(x):
    """Post the receives first, and sum one tensor at the end."""
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = torch.empty((n, *x.shape), dtype=x.dtype)
    parts[rank] = x
    others = [each for each in range(n) if each != rank]
    works = [dist.irecv(parts[each], each) for each in others]
    works += [dist.isend(parts[rank], each) for each in others]
    wait_for(reversed(works))
    return parts.sum(0, dtype=x.dtype)


@right("round_robin")
def other_round_robin(x):
    """Post the receives first, so that sends may block."""
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


@right("master_worker")
def other_master_worker(x):
    """Receive from the workers in any order, and serve them one by one."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = x.contiguous()
    if rank:
        total = torch.empty_like(x)
        dist.isend(x, 0).wait()
        dist.irecv(total, 0).wait()
        return total
    room = [torch.empty_like(x) for _ in range(1, n)]
    wait_for([dist.irecv(each, worker) for worker, each in enumerate(room, 1)])
    total = sum(room, x.clone())
    for worker in reversed(range(1, n)):
        dist.send(total, worker)
    return total


@right("tree")
def other_tree(x):
    """Use another binomial tree than the kit's: neighbours first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total, distances = x.contiguous().clone(), [2**k for k in range((n - 1).bit_length())]
    for distance in distances:
        if rank % (2 * distance) == distance:
            dist.send(total, rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < n:
            total += received_like(total, rank + distance)
    for distance in reversed(distances):
        if rank % (2 * distance) == distance:
            dist.recv(total, rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < n:
            dist.send(total, rank + distance)
    return total


@right("butterfly")
def other_butterfly(x):
    """Follow MPICH: the first ranks pair up, even ranks give to odd ranks.

    The farthest go first.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    total = x.contiguous().clone()
    received, doubled = torch.empty_like(total), 2 ** (n.bit_length() - 1)
    beyond = n - doubled
    if rank < 2 * beyond and rank % 2 == 0:
        dist.send(total, rank + 1)
        dist.recv(total, rank + 1)
        return total
    if rank < 2 * beyond:
        total += received_like(total, rank - 1)
    mine = rank // 2 if rank < 2 * beyond else rank - beyond
    for distance in reversed([2**k for k in range(doubled.bit_length() - 1)]):
        other = mine ^ distance
        other = 2 * other + 1 if other < beyond else other + beyond
        exchange(total, other, received, other)
        total += received
    if rank < 2 * beyond:
        dist.send(total, rank - 1)
    return total


@right("ring")
def other_ring(x):
    """Cut by torch.chunk, begin at another chunk, and send no empty chunk."""
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


@right("all_to_all")
def sends_by_distance(x):
    """Keep each rank's x, and add all of them in one expression."""
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = x.flatten()
    parts = {rank: flat, **{r: torch.zeros_like(flat) for r in range(n) if r != rank}}
    others = [r for r in range(n) if r != rank]
    in_a_batch([(flat, r) for r in others], [(parts[r], r) for r in others])
    in_order = (parts[r] for r in range(n))
    return functools.reduce(torch.add, in_order, torch.zeros_like(flat)).reshape(x.shape)


@right("round_robin")
def receives_into_new_tensors(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, total = x.contiguous(), x.clone()
    for far in range(1, n):
        got = torch.empty(x.shape, dtype=x.dtype)
        exchange(mine, (rank + far) % n, got, (rank - far) % n)
        total += got
    return total


@right("master_worker")
def workers_post_both(x):
    """Post the receive of the answer before the send; serve the last worker first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, total = x.contiguous(), x.contiguous() * 1
    if rank > 0:
        receiving = dist.irecv(total, 0)
        dist.send(mine, 0)
        receiving.wait()
        return total
    for worker in range(n - 1, 0, -1):
        total = total + received_like(mine, worker)
    in_a_batch([(total, worker) for worker in range(1, n)], [])
    return total


@right("tree")
def with_lab_02s_after_a_flat_copy(x):
    flat = x.flatten().clone()
    answers.get("reduce")(flat, 0)
    answers.get("broadcast")(flat, 0)
    return flat.view_as(x)


@right("butterfly")
def farthest_first(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    total, half = x.contiguous() + 0, 1 << (n.bit_length() - 1)
    room = torch.empty_like(total)
    if rank >= half:
        dist.isend(total, rank - half).wait()
        return received_like(total, rank - half)
    if rank + half < n:
        total += received_like(total, rank + half)
    distance = half // 2
    while distance:
        exchange(total, rank ^ distance, room, rank ^ distance)
        total = torch.add(total, room)
        distance //= 2
    if rank + half < n:
        dist.send(total, rank + half)
    return total


@right("ring")
def from_lab_02s_two_halves(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    total = x.clone(memory_format=torch.contiguous_format)
    chunks = list(total.view(-1).tensor_split(n))
    answers.get("reduce_scatter")(chunks[rank], chunks)
    answers.get("all_gather")(chunks, chunks[rank])
    return total


@right("ring")
def in_two_loops_that_end_at_the_right(x):
    """End the first half with chunk r + 1 on rank r; post the receives first."""
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = x.reshape(-1).clone()
    cuts = [len(flat) * k // n for k in range(n + 1)]

    def chunk(k):
        return flat[cuts[k % n] : cuts[k % n + 1]]

    for step in range(n - 1):
        got = torch.empty_like(chunk(rank - step - 1))
        receiving = dist.irecv(got, (rank - 1) % n)
        dist.send(chunk(rank - step), (rank + 1) % n)
        receiving.wait()
        chunk(rank - step - 1).add_(got)
    for step in range(n - 1):
        receiving = dist.irecv(chunk(rank - step), (rank - 1) % n)
        dist.send(chunk(rank - step + 1), (rank + 1) % n)
        receiving.wait()
    return flat.view(x.shape)


@right("predict")
def by_numpy(algorithm, world_size, nbytes, latency, bandwidth):
    """Compute with numbers of numpy only."""
    n = np.int64(world_size)
    rounds = np.ceil(np.log2(n))
    more = 0 if 2**rounds == n else 1
    latencies, tensors = {
        "all_to_all": (np.sign(n - 1), n - 1),
        "round_robin": (n - 1, n - 1),
        "master_worker": (2 * np.sign(n - 1), 2 * (n - 1)),
        "tree": (2 * rounds, 2 * rounds),
        "butterfly": (rounds + more, rounds + more),
        "ring": (2 * (n - 1), 2 * (n - 1) / n),
    }[algorithm]
    return latencies * np.float64(latency) + tensors * np.float64(nbytes) / bandwidth


@right("master_worker")
def by_numpy_sums(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = [x.contiguous().clone() for _ in range(n)]
    if rank:
        dist.send(parts[0], 0)
        dist.recv(parts[0], 0)
        return parts[0]
    for worker in range(1, n):
        dist.recv(parts[worker], worker)
    total = torch.from_numpy(
        np.sum([each.numpy() for each in parts], axis=0, dtype=x.numpy().dtype)
    )
    for worker in range(1, n):
        dist.send(total.contiguous(), worker)
    return total


@right("predict")
def by_cases(algorithm, world_size, nbytes, latency, bandwidth):
    n, per_tensor = world_size, nbytes / bandwidth
    if n == 1:
        return 0
    log = math.log2(n)
    if algorithm == "all_to_all":
        return latency + (n - 1) * per_tensor
    if algorithm == "round_robin":
        return (n - 1) * (latency + per_tensor)
    if algorithm == "master_worker":
        return 2 * (latency + (n - 1) * per_tensor)
    if algorithm == "tree":
        return 2 * math.ceil(log) * (latency + per_tensor)
    if algorithm == "butterfly":
        rounds = log if log.is_integer() else math.floor(log) + 2
        return rounds * (latency + per_tensor)
    return (n - 1) * (2 * latency + 2 * per_tensor / n)


@right("predict")
def by_rounds(algorithm, world_size, nbytes, latency, bandwidth):
    """Compute rounds, and the share of the tensor on the busiest link in each round."""
    if world_size == 1:
        return 0.0
    n, log = world_size, len(bin(world_size)) - 3  # rounded down
    power = n == 1 << log
    rounds, share = {
        "all_to_all": lambda: (1, n - 1),
        "round_robin": lambda: (n - 1, 1),
        "master_worker": lambda: (2, n - 1),
        "tree": lambda: (2 * (log + (not power)), 1),
        "butterfly": lambda: (log + 2 * (not power), 1),
        "ring": lambda: (2 * n - 2, 1 / n),
    }[algorithm]()
    return sum(latency + share * nbytes / bandwidth for _ in range(rounds))
