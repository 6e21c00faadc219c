"""Makes `init_process_group` of a script join the run, whatever address the script names.

The script's groups are ddpkit's groups, and report the backends that the script has requested
(`group.asked`).

If the script destroys a group, ddpkit still keeps a hidden reference to the group. The last holder
to release a group is often DDP's reducer, in C++, while it holds the GIL. gloo's threads report
ends of operations to Python, so they would wait for the GIL, and the group's end would wait for
them.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch.distributed as dist
from torch import multiprocessing
from torch.distributed import PrefixStore

from ddpkit.protocol.assignment import GROUP_TIMEOUT, Assignment
from ddpkit.rank.emulation import machine
from ddpkit.rank.group.asked import AskedGroups, default_backend, replace
from ddpkit.rank.group.backend import asked_for, join
from ddpkit.rank.record.recorder import current
from ddpkit.rank.script.processes import ranks_as_processes

MINUTES, MINUTES_NCCL = 30, 10  # the default timeouts of torch.distributed.constants
OURS = frozenset({"gloo", "nccl"})  # backends replaced by the kit's groups


@contextmanager
def let_join(mine: Assignment, store: dist.Store) -> Iterator[None]:
    """A block in which the script of this process may join the run."""
    joining = Joining(mine, store)
    with joining.groups.in_place(), ExitStack() as undo:
        replace("init_process_group", joining.init_process_group, undo)
        if hasattr(dist, "split_group"):
            replace("split_group", joining.split_group, undo)
        homes = multiprocessing, sys.modules["torch.multiprocessing.spawn"]
        replace("spawn", joining.spawn, undo, homes)
        replace("start_processes", joining.spawn, undo, homes)
        undo.enter_context(ranks_as_processes(joining.is_process))
        yield


class Joining:
    """Replacements for the functions that start a job and its processes in a script."""

    def __init__(self, mine: Assignment, store: dist.Store) -> None:
        self._mine, self._store = mine, store
        self._times, self._spawns, self._pid = 0, 0, os.getpid()
        self._said: set[str] = set()
        self._size = mine.world_size  # ranks of the next default group
        self._splits: Any = getattr(dist, "split_group", None)
        self.groups = AskedGroups(default_backend(mine), OURS)

    def init_process_group(
        self,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: object = None,
        world_size: int = -1,
        rank: int = -1,
        *_: object,
        **__: object,
    ) -> None:
        """Join the run, through ddpkit's store and with ddpkit's timeout.

        Raises ValueError for an unsupported backend, and for a rank or a world size that differs
        from this process's. Raises RuntimeError in a process that the script has started.
        """
        if backend and not self.groups.is_ours(backend):
            raise ValueError(
                f"init_process_group(backend={backend!r}): `ddpkit run` supports the backends gloo "
                "and nccl only"
            )
        for name, given, here in (
            ("rank", rank, self._mine.rank),
            ("world_size", world_size, self._size),
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
        self._times += 1
        emulated, times = machine.current(), self._times
        with emulated.clocks.mine.stopped() if emulated else nullcontext():
            mine = dataclasses.replace(self._mine, world_size=self._size)
            name = f"spawn {self._spawns}" if self._size < self._mine.world_size else ""
            with asked_for(backend):
                join(mine, PrefixStore(f"time {times}", self._store), times, name)
        if backend and "," in backend:
            from ddpkit.rank.group.following import following

            following.begin()
        self.groups.keep(dist.group.WORLD)
        self.groups.default = str(dist.Backend(backend or default_backend(self._mine)))
        if (recorder := current()) is not None:
            recorder.limit = _limit(self.groups.default, timeout)
        dist.group.WORLD.answers_as = self.groups.default  # type: ignore[union-attr]

    def split_group(
        self,
        parent_pg: dist.ProcessGroup | None = None,
        split_ranks: Any = None,
        *_: object,
        **__: object,
    ) -> object:
        """Make the groups of a split as `new_group` does; return the group with this rank.

        torch can split groups of NCCL; torch's own function refuses other backends.
        """
        if "nccl" not in dist.get_backend(parent_pg):
            return self._splits(parent_pg, split_ranks)
        members, mine = dist.get_process_group_ranks(parent_pg or dist.group.WORLD), None
        for ranks in split_ranks:
            group = dist.new_group(
                [members[rank] for rank in ranks],
                use_local_synchronization=len(members) < self._mine.world_size,
            )
            mine = group if members.index(self._mine.rank) in ranks else mine
        return mine

    def spawn(
        self,
        fn: Callable[..., object],
        args: tuple[object, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *_: object,
        **__: object,
    ) -> object:
        """Call a function on this rank, in place of starting the process that would be this rank.

        If there are more ranks than `nprocs`, the first `nprocs` ranks call the function, and all
        ranks continue when these calls have returned. After the call, the groups that it has joined
        and its changes of the environment are gone, as at the end of a process. Raises ValueError
        if there are fewer ranks.

        Under torchrun such a script would start all these processes on each rank.
        """
        size, rank = self._mine.world_size, self._mine.rank
        if nprocs > size or (nprocs < size and self._mine.alike is not None):
            raise ValueError(
                f"mp.spawn(nprocs={nprocs}) does not fit a job of {size} ranks: here mp.spawn "
                "starts no processes, and the ranks of the job call the function. Start the job "
                f"with `ddpkit run -n {nprocs}`."
            )
        self._spawns += 1
        self._say_once("mp.spawn starts no processes; each rank calls the function")
        if rank < nprocs:
            self._as_a_process(functools.partial(fn, rank, *args), nprocs)
        if nprocs < size:
            self._wait_for(range(nprocs))
        return None if join else Ended()

    def _wait_for(self, ranks: range) -> None:
        """Wait until the ranks `ranks` have returned from a call, and copy their number of joins.

        Code after the call may read files that the call wrote, and the next default group of all
        ranks needs the same number on all ranks.
        """
        keys = [f"spawn {self._spawns} of rank {each}" for each in ranks]
        if self._mine.rank in ranks:
            self._store.set(keys[self._mine.rank], str(self._times))
        self._store.wait(keys, GROUP_TIMEOUT)
        self._times = max(int(self._store.get(key)) for key in keys)

    def is_process(self, number: int, run: Callable[[], object]) -> None:
        """Run the process that the script starts after `number` others, if it is this rank's."""
        self._say_once(
            "the processes that the script starts for its ranks are the ranks of the run"
        )
        if number % self._mine.world_size == self._mine.rank:
            self._as_a_process(run, self._mine.world_size)

    def _say_once(self, text: str) -> None:
        if self._mine.rank == 0 and text not in self._said:
            print(f"ddpkit run: {text}", file=sys.stderr)
        self._said.add(text)

    def _as_a_process(self, call: Callable[[], object], nprocs: int) -> None:
        """Call a function as a process of a job with `nprocs` ranks would."""
        was_joined, environ = dist.is_initialized(), dict(os.environ)
        self._size = nprocs
        os.environ["WORLD_SIZE"] = str(nprocs)
        try:
            call()
        finally:
            self._size = self._mine.world_size
        os.environ.clear()
        os.environ.update(environ)
        if dist.is_initialized() and not was_joined:
            dist.destroy_process_group()


def _limit(backend: str, timeout: Any) -> float:
    """Return the timeout of a default group in seconds; by default, the backend's own."""
    if timeout is None:
        return MINUTES_NCCL * 60.0 if "nccl" in backend else MINUTES * 60.0
    return float(timeout.total_seconds())


class Ended:
    """The result of `mp.spawn(join=False)`: processes that have ended."""

    processes: tuple[object, ...] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """True, because all processes have ended."""
        return True
