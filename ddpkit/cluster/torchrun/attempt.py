"""Gives each attempt of a job its own part of the store, which torchrun may keep after a failure.

The previous attempt left addresses of dead ranks in the store. The new attempt must not read these.
There is no number of the attempt: the agent of each host counts only the failures on the agent's
own host (pytorch/pytorch#108158). Therefore each rank asks rank 0 with a random word. Rank 0
chooses a new name for a part of the store, and answers each rank's word with the name.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ddpkit.errors import ClusterError

if TYPE_CHECKING:
    import torch.distributed as dist

LOOK = 0.01  # seconds between two looks for words of ranks in the store


def own_part(store: dist.Store, rank: int, size: int) -> Any:
    """Return the current attempt's part of the job's store. Every rank calls the function.

    Raises ClusterError on rank 0 if a rank does not ask within the store's timeout.
    """
    from torch.distributed import PrefixStore

    return PrefixStore(_answer(store, size) if rank == 0 else _ask(store, rank), store)


def _ask(store: dist.Store, rank: int) -> str:
    word = secrets.token_hex(8)
    store.set(f"ddpkit/ask{rank}", word)
    name: str = store.get(f"ddpkit/answer{word}").decode()
    store.set(f"{name}/heard{rank}", "")
    return name


def _answer(store: Any, size: int) -> str:
    """Answer all words in the store, also words of old attempts, until every rank has the name."""
    name, give_up = (
        f"ddpkit/{secrets.token_hex(8)}",
        time.monotonic() + store.timeout.total_seconds(),
    )
    while not all(store.check([f"{name}/heard{rank}"]) for rank in range(1, size)):
        if time.monotonic() > give_up:
            raise ClusterError(
                "some ranks that torchrun started did not join the job in time: see their output"
            )
        for rank in range(1, size):
            if store.check([f"ddpkit/ask{rank}"]):
                word = store.get(f"ddpkit/ask{rank}").decode()
                store.set(f"ddpkit/answer{word}", name)
        time.sleep(LOOK)
    return name


def in_words(restarts: Iterable[int]) -> str:
    """Return the highest count of restarts on any host, such as "1 of 2"; "" before any restart."""
    counted = set(restarts)
    most = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "?")
    return f"{max(counted)} of {most}" if any(counted) else ""
