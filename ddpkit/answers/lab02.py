# mypy: ignore-errors
"""Answers of lab 02 (collectives).

Generated from solutions/02_collectives.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist


def fit_link(nbytes: list[int], round_trips: list[float]) -> tuple[float, float]:
    """Return a link's latency in seconds and bandwidth in bytes per second, by least squares.

    A message of `nbytes[i]` bytes took `round_trips[i]` seconds there and back. All measurements
    have the same weight.
    """
    size = torch.tensor(nbytes, dtype=torch.float64)
    one_way = torch.tensor(round_trips, dtype=torch.float64) / 2
    far = size - size.mean()
    seconds_per_byte = (far * (one_way - one_way.mean())).sum() / (far * far).sum()
    latency = one_way.mean() - seconds_per_byte * size.mean()
    return latency.item(), 1 / seconds_per_byte.item()


def broadcast(x: torch.Tensor, src: int) -> None:
    """Copy `x` of rank `src` into `x` of every rank, by a binomial tree.

    Works in place, with only send, recv, isend and irecv; each call names a rank. Takes ⌈log2 n⌉
    rounds, and each rank except `src` receives `x` once. `x` may have any shape, and may be
    transposed, but send and recv need `x.contiguous()`.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place, far = (rank - src) % world_size, 1
    message = x.contiguous()
    while far < world_size:
        if place < far and place + far < world_size:
            dist.send(message, (rank + far) % world_size)
        elif far <= place < 2 * far:
            dist.recv(message, (rank - far) % world_size)
        far *= 2
    x.copy_(message)


def reduce(x: torch.Tensor, dst: int) -> None:
    """Add up `x` of all ranks into `x` of rank `dst`, by a binomial tree.

    Uses the same calls as `broadcast`, and each call names a rank. `x` stays unchanged on every
    rank except `dst`. Takes ⌈log2 n⌉ rounds, and each rank except `dst` sends once: as many bytes
    as `x` has.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place, far = (rank - dst) % world_size, 1
    total = x.contiguous()
    while far < world_size and place % far == 0:
        if place % (2 * far) == far:
            dist.send(total, (rank - far) % world_size)
        elif place + far < world_size:
            received = torch.empty_like(total)
            dist.recv(received, (rank + far) % world_size)
            total = total + received
        far *= 2
    if rank == dst:
        x.copy_(total)


def scatter(x: torch.Tensor, chunks: list[torch.Tensor] | None, src: int) -> None:
    """Copy `chunks[r]` of rank `src` into `x` of rank r, for every r.

    Uses only messages. `chunks` is None on the other ranks. Rank `src` sends each of these ranks
    its chunk and nothing else. The chunks stay unchanged, may have different lengths, and need not
    be contiguous; each `x` is contiguous.
    """
    if dist.get_rank() != src:
        dist.recv(x, src)
        return
    for rank, chunk in enumerate(chunks):
        if rank != src:
            dist.send(chunk.contiguous(), rank)
    x.copy_(chunks[src])


def gather(x: torch.Tensor, chunks: list[torch.Tensor] | None, dst: int) -> None:
    """Copy `x` of rank r into `chunks[r]` of rank `dst`, for every r.

    Uses only messages. `chunks` is None on the other ranks; each of these ranks sends one message,
    to `dst`. The chunks are written in place, and are contiguous. Every `x` stays unchanged, and
    need not be contiguous.
    """
    if dist.get_rank() != dst:
        dist.send(x.contiguous(), dst)
        return
    for rank, chunk in enumerate(chunks):
        if rank != dst:
            dist.recv(chunk, rank)
    chunks[dst].copy_(x)


def all_gather(chunks: list[torch.Tensor], x: torch.Tensor) -> None:
    """Copy `x` of rank r into `chunks[r]` of every rank, around a ring.

    Uses only messages. In each of n - 1 steps, a rank sends one chunk to the right (rank + 1) and
    at the same time receives one chunk from the left. The chunks are written in place. `x` stays
    unchanged, need not be contiguous, and may be one of the chunks. The chunks are contiguous and
    may have different lengths.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    chunks[rank].copy_(x)
    for step in range(world_size - 1):
        sending = dist.isend(chunks[(rank - step) % world_size], (rank + 1) % world_size)
        dist.recv(chunks[(rank - step - 1) % world_size], (rank - 1) % world_size)
        sending.wait()


def reduce_scatter(x: torch.Tensor, chunks: list[torch.Tensor]) -> None:
    """Add up `chunks[r]` of all ranks into `x` of rank r, around a ring.

    Uses only messages. In each of n - 1 steps, a rank sends one sum to the right (rank + 1) and at
    the same time receives one sum from the left. The chunks stay unchanged (but `x` may be one of
    the chunks), may have different lengths, and need not be contiguous.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = chunks[rank - 1].contiguous()
    for step in range(2, world_size + 1):
        mine = chunks[rank - step].contiguous()
        received = torch.empty_like(mine)
        sending = dist.isend(total, (rank + 1) % world_size)
        dist.recv(received, (rank - 1) % world_size)
        sending.wait()
        total = received + mine
    x.copy_(total)


def barrier() -> None:
    """Return only after every rank has called the barrier, in ⌈log2 n⌉ rounds.

    In each round, a rank sends a message of one element to one rank, and at the same time receives
    a message from another rank. Each call names a rank.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    far = 1
    while far < world_size:
        sending = dist.isend(torch.zeros(1), (rank + far) % world_size)
        dist.recv(torch.zeros(1), (rank - far) % world_size)
        sending.wait()
        far *= 2
