"""Lab 08: workers and servers on ranks, for the checks of `push` and `pull`.

A server first receives the headers of all workers. Then it waits until the next server in the list
has received all headers too. Only then does the server exchange data. So a worker that waits for
the data of one server before it sends a header to the next server waits forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


HEADER, DATA, TOKEN = 1, 2, 3  # tags
PUSH, PULL, DONE = range(3)


def workers_of(servers: Sequence[int], world_size: int) -> list[int]:
    """Return the ranks that are not servers."""
    return [rank for rank in range(world_size) if rank not in servers]


def headers_in(servers: Sequence[int]) -> list[int]:
    """Receive a header from each worker; return the requests when the next server has its own."""
    requests = []
    for worker in workers_of(servers, dist.get_world_size()):
        header = torch.zeros(1, dtype=torch.int64)
        dist.recv(header, src=worker, tag=HEADER)
        requests.append(int(header))
    place, token = servers.index(dist.get_rank()), torch.zeros(1)
    if place + 1 < len(servers):
        dist.recv(token, src=servers[place + 1], tag=TOKEN)
    if place:
        dist.send(token, dst=servers[place - 1], tag=TOKEN)
    return requests


def pushed(answer: Answer, mine: Tensor, servers: Sequence[int], *, data_first: bool) -> object:
    """Push a worker's gradient; on a server, return the requests and the received chunks.

    With `data_first`, a server receives the chunk before the header. A worker that waits for its
    header to arrive, before it sends the chunk, then waits forever.
    """
    if dist.get_rank() not in servers:
        return answer(mine, servers)
    requests, chunks = [] if data_first else headers_in(servers), []
    for worker in workers_of(servers, dist.get_world_size()):
        chunk = torch.zeros_like(mine)
        dist.recv(chunk, src=worker, tag=DATA)
        chunks.append(chunk)
    return requests or headers_in(servers), chunks


def pulled(answer: Answer, mine: Tensor, servers: Sequence[int]) -> object:
    """Pull into a worker's tensor; a server sends its chunk, and returns the requests."""
    if dist.get_rank() not in servers:
        answer(mine, servers)
        return mine
    requests = headers_in(servers)
    for worker in workers_of(servers, dist.get_world_size()):
        dist.send(mine, dst=worker, tag=DATA)
    return requests
