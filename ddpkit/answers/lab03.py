# mypy: ignore-errors
"""Answers of lab 03 (all_reduce).

Generated from solutions/03_all_reduce.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist

from ddpkit.answers import get

broadcast = get("broadcast")
reduce = get("reduce")


def all_to_all(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: every rank sends x to every other rank.

    All messages are under way at once. Every rank adds in the order of the ranks, so that all ranks
    get the same sum to the last bit. `x` may have any shape and dtype, and need not be contiguous.
    To be fast, send first to the next rank on the right, then to the rank after the next, and so
    on. In another order, several ranks may send to the same rank at once. The check does not
    measure the time.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = x.contiguous()  # in one piece: send and recv need a contiguous tensor
    parts = [torch.empty_like(mine) for _ in range(world_size)]
    parts[rank] = mine
    works = [dist.isend(mine, (rank + far) % world_size) for far in range(1, world_size)]
    for far in range(1, world_size):
        sender = (rank - far) % world_size
        works.append(dist.irecv(parts[sender], sender))
    for work in works:
        work.wait()
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def round_robin(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor, in n - 1 rounds of one exchange each.

    In round `far` (1 to n - 1), a rank sends x to the rank at distance `far` on the right, receives
    from the rank at distance `far` on the left, and adds. The next round begins afterwards.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = x.contiguous()
    total, received = mine.clone(), torch.empty_like(mine)
    for far in range(1, world_size):
        sending = dist.isend(mine, (rank + far) % world_size)
        dist.recv(received, (rank - far) % world_size)
        sending.wait()
        total += received
    return total


def master_worker(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: rank 0 adds up, and sends the sum.

    Every `send` and every `recv` names a rank.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = x.clone(memory_format=torch.contiguous_format)
    if rank > 0:
        dist.send(total, 0)
        dist.recv(total, 0)
        return total
    received = torch.empty_like(total)
    for worker in range(1, world_size):
        dist.recv(received, worker)
        total += received
    for work in [dist.isend(total, worker) for worker in range(1, world_size)]:
        work.wait()
    return total


def tree(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: up a binomial tree to rank 0, and down.

    Calls lab 02's reduce(x, dst) and broadcast(x, src), which work in place.
    """
    total = x.clone()
    reduce(total, dst=0)
    broadcast(total, src=0)
    return total


def butterfly(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor, by recursive doubling.

    If n is not a power of two, each rank beyond the largest power of two first sends x to a
    different rank of the butterfly, and gets the sum back from the same rank at the end.
    Two partners send to each other at the same time.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = x.clone(memory_format=torch.contiguous_format)
    received = torch.empty_like(total)
    doubled = 2 ** (world_size.bit_length() - 1)  # the largest power of two up to n
    if rank >= doubled:
        dist.send(total, rank - doubled)
        dist.recv(total, rank - doubled)
        return total
    if rank + doubled < world_size:
        dist.recv(received, rank + doubled)
        total += received
    for distance in [2**k for k in range(doubled.bit_length() - 1)]:
        sending = dist.isend(total, rank ^ distance)
        dist.recv(received, rank ^ distance)
        sending.wait()
        total += received
    if rank + doubled < world_size:
        dist.send(total, rank + doubled)
    return total


def ring(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, as a new tensor: chunks go around twice, to the right.

    In each of 2(n - 1) rounds, a rank sends one chunk of about 1/n of x. Works for every length,
    even a length that n does not divide, or a length below n. (`torch.tensor_split` cuts a flat
    tensor into n views.)
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    total = x.clone(memory_format=torch.contiguous_format)
    chunks = total.view(-1).tensor_split(world_size)  # views: adding to a chunk changes total
    for step in range(2 * (world_size - 1)):
        outgoing = chunks[(rank - step) % world_size]
        incoming = chunks[(rank - step - 1) % world_size]
        received = torch.empty_like(incoming)
        sending = dist.isend(outgoing, right)
        dist.recv(received, left)
        sending.wait()
        if step < world_size - 1:  # share-reduce
            incoming += received
        else:  # share only
            incoming.copy_(received)
    return total


def predict(
    algorithm: str, world_size: int, nbytes: int, latency: float, bandwidth: float
) -> float:
    """Return the seconds of one of the six all-reduces, given by its name.

    `latency` is α in seconds, `bandwidth` is β in bytes per second. A tree takes ⌈log2 n⌉ rounds
    up and as many down. A butterfly takes log2 n rounds if n is a power of two, and ⌊log2 n⌋ + 2
    otherwise. One rank alone needs no time.
    """
    n, t = world_size, nbytes / bandwidth
    up = (n - 1).bit_length()  # ⌈log2 n⌉
    doublings = up if n == 2**up else up + 1  # ⌊log2 n⌋ + 2 is ⌈log2 n⌉ + 1 there
    latencies, tensors = {
        "all_to_all": (1, n - 1),
        "round_robin": (n - 1, n - 1),
        "master_worker": (2, 2 * (n - 1)),
        "tree": (2 * up, 2 * up),
        "butterfly": (doublings, doublings),
        "ring": (2 * (n - 1), 2 * (n - 1) / n),
    }[algorithm]
    return latencies * latency + tensors * t if n > 1 else 0.0
