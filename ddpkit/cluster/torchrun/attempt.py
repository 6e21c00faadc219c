"""An attempt of a job: torchrun starts all ranks again after a failure, and may keep its store.

What the attempt before has left there, addresses of ranks that are dead, must not be read again. No
number says which attempt this is: the agent of each host counts only the failures that it has seen
itself (pytorch/pytorch#108158). So rank 0 names a part of the store that nobody has written to, and
tells it to each rank under the word with which this rank, in this attempt, has asked.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from typing import Any

from ddpkit.errors import ClusterError

LOOK = 0.01  # seconds between two looks at who has asked


def own_part(store: Any, rank: int, size: int) -> Any:
    """This attempt's part of the job's store; every rank asks.

    Raises ClusterError on rank 0 if a rank has not asked within the store's timeout.
    """
    from torch.distributed import PrefixStore

    return PrefixStore(_answer(store, size) if rank == 0 else _ask(store, rank), store)


def _ask(store: Any, rank: int) -> str:
    word = secrets.token_hex(8)
    store.set(f"ddpkit/ask{rank}", word)
    name: str = store.get(f"ddpkit/answer{word}").decode()
    store.set(f"{name}/heard{rank}", "")
    return name


def _answer(store: Any, size: int) -> str:
    """Answer all who ask, the dead of an attempt before too, until every rank has heard."""
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
    """Which attempt it is, by what the hosts have counted: "1 of 2"; "" before any restart."""
    counted = set(restarts)
    most = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "?")
    return f"{max(counted)} of {most}" if any(counted) else ""
