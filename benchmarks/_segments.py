"""The lesson's ring with each chunk in two segments, so that gloo is always busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PARTS = 2  # parts of a chunk, even of 16 MB: each additional message costs 0.1 ms of processor time


def ring_in_segments(x: torch.Tensor) -> None:
    """All-reduce a contiguous tensor in place, by a ring to the right.

    In the share-reduce half, each chunk is sent in two segments, so that one segment is on its way
    while the other segment is added, as in gloo's own ring (gloo/allreduce.cc). The share-only half
    adds nothing, so its chunks stay whole, and all its receives are posted at its beginning. The
    sends of a half are waited for at its end, because until then no code writes into sent memory.
    """
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks = x.view(-1).tensor_split(n)
    segments = [chunk.tensor_split(PARTS) for chunk in chunks]  # segments[0][0] is the longest
    room = [segments[0][0].new_empty(segments[0][0].shape) for _ in range(2)]
    sends: list[Any] = []
    last: tuple[Any, ...] = ()
    for count in range((n - 1) * PARTS):  # share-reduce
        step, part = divmod(count, PARTS)
        mine = segments[(rank - step - 1) % n][part]
        received = room[count % 2][: len(mine)]
        receiving = dist.irecv(received, left)
        sends.append(dist.isend(segments[(rank - step) % n][part], right))
        _add(*last)  # while the new segment is on its way
        last = receiving, mine, received
    _add(*last)
    _wait(sends)
    receives = [dist.irecv(chunks[(rank - step) % n], left) for step in range(n - 1)]
    sends = []
    for step, receiving in enumerate(receives):  # share only
        sends.append(dist.isend(chunks[(rank - step + 1) % n], right))
        _wait([receiving])
    _wait(sends)


def _add(receiving: Any = None, mine: Any = None, received: Any = None) -> None:
    if receiving is not None:
        receiving.wait()
        mine.add_(received)


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()
