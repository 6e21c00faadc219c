"""`init_process_group` of a script: it joins the run, whatever backend and meeting place it names.

The script's groups are the kit's, so that they are recorded, explained and emulated. Where it looks
(`get_backend`), it sees the backend that it has asked for. torch's own code sees the kit's.

A group that the script destroys is kept all the same, out of its sight. The last to let go of it is
often DDP's reducer, in C++, with the GIL held: gloo's threads, which tell Python when an operation
has ended, would wait for the GIL, and the group's end for them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any

import torch.distributed as dist
from torch import multiprocessing
from torch.distributed import PrefixStore

from ddpkit.protocol.assignment import GROUP_TIMEOUT, Assignment
from ddpkit.rank.emulation import machine
from ddpkit.rank.group.backend import join
from ddpkit.rank.script.callers import is_torchs

OURS = frozenset({"gloo", "nccl"})  # backends whose work the kit's groups do
REPLACED = ("init_process_group", "new_group", "get_backend", "monitored_barrier")


def let_join(mine: Assignment, store: Any) -> None:
    """Let the script that runs in this process join the run when it wants to."""
    joining = Joining(mine, store)
    for name in REPLACED:
        function = _instead_of(getattr(dist, name), getattr(joining, name))
        for home in (dist, dist.distributed_c10d, dist.device_mesh):
            if hasattr(home, name):
                setattr(home, name, function)
    homes: list[Any] = [multiprocessing, sys.modules["torch.multiprocessing.spawn"]]
    spawn = _instead_of(homes[0].spawn, joining.spawn)
    for home in homes:
        home.spawn = spawn


def _instead_of(original: Callable[..., Any], replacement: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return replacement(*args, **kwargs)

    return wrapper


class Joining:
    """What a script is given in the place of torch.distributed's functions for making groups."""

    def __init__(self, mine: Assignment, store: Any) -> None:
        self._mine, self._store = mine, store
        self._times, self._pid = count(1), os.getpid()
        self._asked = ""  # the backend that the script has asked for
        self._own: dict[Any, str] = {}  # and for a group, where that is another
        self._kept: list[Any] = []  # all groups
        self._new_group, self._get_backend = dist.new_group, dist.get_backend

    def init_process_group(
        self,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        *_: Any,
        **__: Any,
    ) -> None:
        """Join the run. Where to meet, and how long to wait, are the kit's affair."""
        if backend and not _is_ours(backend):
            raise ValueError(
                f"init_process_group(backend={backend!r}): `ddpkit run` runs what goes over gloo "
                "or NCCL"
            )
        for name, given, here in (
            ("rank", rank, self._mine.rank),
            ("world_size", world_size, self._mine.world_size),
        ):
            if given not in (-1, None, here):
                raise ValueError(
                    f"init_process_group({name}={given}) in a rank whose {name} is {here}: take "
                    f"it from the environment ({name.upper()}), or run `ddpkit run -n` with as "
                    "many ranks as the script wants"
                )
        if os.getpid() != self._pid:
            raise RuntimeError(
                "init_process_group in a process that the script has started: `ddpkit run` starts "
                "the ranks, as torchrun does, and each of them may join"
            )
        emulated, times = machine.current(), next(self._times)
        with emulated.clocks.mine.stopped() if emulated else nullcontext():
            join(self._mine, PrefixStore(f"time {times}", self._store), times)
        self._kept.append(dist.group.WORLD)
        self._asked = backend or ("nccl" if self._mine.device == "cuda" else "gloo")
        self._own.clear()

    def new_group(
        self,
        ranks: Any = None,
        timeout: Any = None,
        backend: str | None = None,
        pg_options: Any = None,
        *more: Any,
        **kwargs: Any,
    ) -> Any:
        """A group of the kit's."""
        if backend and not _is_ours(backend):  # torch makes groups of backend "fake" for itself
            return self._new_group(ranks, timeout, backend, pg_options, *more, **kwargs)
        kwargs.pop("device_id", None)
        group = self._new_group(ranks, GROUP_TIMEOUT, None, None, *more[:2], **kwargs)
        self._kept.append(group)
        if backend:
            self._own[group] = backend
        return group

    def get_backend(self, group: Any = None) -> str:
        """The backend that the script has asked for; torch's own code is told the kit's."""
        found = self._get_backend(group)
        if is_torchs(sys._getframe(2)) or not found.startswith("ddpkit"):
            return found
        return str(dist.Backend(self._own.get(group, self._asked)))

    def monitored_barrier(
        self, group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
    ) -> None:
        """A barrier, as every one is monitored here; for gloo alone, as torch has it."""
        if self._own.get(group, self._asked).lower() != "gloo":
            raise ValueError("monitored_barrier is only implemented for GLOO backend.")
        dist.barrier(group)

    def spawn(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *_: Any,
        **__: Any,
    ) -> Any:
        """Call a function as the one of its processes whose number is this rank's.

        Under torchrun such a script would start all these processes on each rank.
        """
        if nprocs != self._mine.world_size:
            raise ValueError(
                f"mp.spawn(nprocs={nprocs}) in a job of {self._mine.world_size} ranks: the ranks "
                f"are there already, and each calls the function. Run `ddpkit run -n {nprocs}`."
            )
        if self._mine.rank == 0:
            print("ddpkit run: each rank is one that mp.spawn would start", file=sys.stderr)
        fn(self._mine.rank, *args)
        return None if join else Ended()


class Ended:
    """What `mp.spawn(join=False)` gives: processes that have ended."""

    processes: tuple[Any, ...] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Whether all have ended: they have."""
        return True


def _is_ours(backend: str) -> bool:
    """Whether the kit's groups do the work of a backend: "nccl", "cpu:gloo,cuda:nccl"."""
    return OURS.issuperset(part.rpartition(":")[2] for part in backend.lower().split(","))
