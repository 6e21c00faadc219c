"""Lab 08: what runs on the ranks where `push` and `pull` are checked: workers, and servers.

A server takes the headers of all workers, and gives or takes data only when the next server in the
list has its headers too: so a worker that finishes with one server before it turns to the next
waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Answer = Callable[..., Any]

HEADER, DATA, TOKEN = 1, 2, 3  # tags
PUSH, PULL, DONE = range(3)


def workers_of(servers: Sequence[int], world_size: int) -> list[int]:
    """The ranks that are no servers."""
    return [rank for rank in range(world_size) if rank not in servers]


def headers_in(servers: Sequence[int]) -> list[int]:
    """The requests of all workers, by name; the next server has its own by then."""
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


def pushed(answer: Answer, mine: Any, servers: Sequence[int], *, data_first: bool) -> Any:
    """Push a worker's gradient; on a server, return the requests, and the chunks that came.

    With `data_first` a server takes the chunk before the header: so a worker that waits until a
    header has come, before the chunk is on its way, waits for ever.
    """
    if dist.get_rank() not in servers:
        return answer(mine, servers)
    requests, chunks = [] if data_first else headers_in(servers), []
    for worker in workers_of(servers, dist.get_world_size()):
        chunk = torch.zeros_like(mine)
        dist.recv(chunk, src=worker, tag=DATA)
        chunks.append(chunk)
    return requests or headers_in(servers), chunks


def pulled(answer: Answer, mine: Any, servers: Sequence[int]) -> Any:
    """A worker pulls into its tensor; a server answers with its chunk, and tells the requests."""
    if dist.get_rank() not in servers:
        answer(mine, servers)
        return mine
    requests = headers_in(servers)
    for worker in workers_of(servers, dist.get_world_size()):
        dist.send(mine, dst=worker, tag=DATA)
    return requests
