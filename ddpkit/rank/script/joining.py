"""`init_process_group` of a script: it joins the run, whatever backend and meeting place it names.

The script's groups are the kit's, and answer as those that it has asked for (`group.asked`).

A group that the script destroys is kept all the same, out of its sight. The last to let go of it is
often DDP's reducer, in C++, with the GIL held: gloo's threads, which tell Python when an operation
has ended, would wait for the GIL, and the group's end for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any

import torch.distributed as dist
from torch import multiprocessing
from torch.distributed import PrefixStore

from ddpkit.protocol.assignment import Assignment
from ddpkit.rank.emulation import machine
from ddpkit.rank.group.asked import AskedGroups, default_backend, replace
from ddpkit.rank.group.backend import join
from ddpkit.rank.record.recorder import current

MINUTES, MINUTES_NCCL = 30, 10  # the default timeouts of torch.distributed.constants
OURS = frozenset({"gloo", "nccl"})  # backends whose work the kit's groups do


@contextmanager
def let_join(mine: Assignment, store: Any) -> Iterator[None]:
    """A block in which the script that runs in this process joins the run when it wants to."""
    joining = Joining(mine, store)
    with joining.groups.in_place(), ExitStack() as undo:
        replace("init_process_group", joining.init_process_group, undo)
        homes = multiprocessing, sys.modules["torch.multiprocessing.spawn"]
        replace("spawn", joining.spawn, undo, homes)
        yield


class Joining:
    """The functions that a script gets in the place of those that start a job and its processes."""

    def __init__(self, mine: Assignment, store: Any) -> None:
        self._mine, self._store = mine, store
        self._times, self._pid = count(1), os.getpid()
        self.groups = AskedGroups(default_backend(mine), OURS)

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
        if backend and not self.groups.is_ours(backend):
            raise ValueError(
                f"init_process_group(backend={backend!r}): `ddpkit run` supports the backends gloo "
                "and nccl only"
            )
        for name, given, here in (
            ("rank", rank, self._mine.rank),
            ("world_size", world_size, self._mine.world_size),
        ):
            if given not in (-1, None, here):
                start = f", or start `ddpkit run -n {given}`" if name == "world_size" else ""
                raise ValueError(
                    f"init_process_group({name}={given}), but this process has {name} {here}: "
                    f"take {name} from the environment variable {name.upper()}{start}"
                )
        if os.getpid() != self._pid:
            raise RuntimeError(
                "init_process_group was called in a process that the script has started: `ddpkit "
                "run` starts one process for each rank, as torchrun does, and only these "
                "processes may join"
            )
        emulated, times = machine.current(), next(self._times)
        with emulated.clocks.mine.stopped() if emulated else nullcontext():
            join(self._mine, PrefixStore(f"time {times}", self._store), times)
        self.groups.keep(dist.group.WORLD)
        self.groups.default = str(dist.Backend(backend or default_backend(self._mine)))
        if (recorder := current()) is not None:
            recorder.limit = _limit(self.groups.default, timeout)
        dist.group.WORLD.answers_as = self.groups.default  # type: ignore[union-attr]

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
                "have been started, and each calls the function. Start the job with "
                f"`ddpkit run -n {nprocs}`."
            )
        if self._mine.rank == 0:
            print(
                "ddpkit run: mp.spawn starts no processes; each rank calls the function",
                file=sys.stderr,
            )
        fn(self._mine.rank, *args)
        return None if join else Ended()


def _limit(backend: str, timeout: Any) -> float:
    """Return the timeout of a default group in seconds."""
    if timeout is None:
        return MINUTES_NCCL * 60.0 if "nccl" in backend else MINUTES * 60.0
    return float(timeout.total_seconds())


class Ended:
    """What `mp.spawn(join=False)` gives: processes that have ended."""

    processes: tuple[Any, ...] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Whether all have ended: they have."""
        return True
