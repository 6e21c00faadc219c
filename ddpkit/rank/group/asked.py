"""Makes ddpkit's groups report the backend that the user has requested, such as "gloo" or "nccl".

A cell and a script may make a group of backend "gloo" or "nccl", and read a group's backend. The
group belongs to ddpkit, which records, explains and emulates its calls. User code that reads the
backend gets the requested backend. torch's own code gets ddpkit's backend, except for the
differentiable collectives.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.distributed as dist

from ddpkit.protocol.assignment import GROUP_TIMEOUT, Assignment
from ddpkit.rank.callers import is_torchs, module_of
from ddpkit.rank.group import absent
from ddpkit.rank.group.backend import asked_for
from ddpkit.rank.group.recorded import RecordedGroup

# NCCL's backward of an all_gather is a reduce_scatter; gloo's is an all_to_all and a sum.
DIFFERENTIABLE = "torch.distributed.nn.functional"
HOMES = (dist, dist.distributed_c10d, dist.device_mesh)


def default_backend(mine: Assignment) -> str:
    """Return the backend that the default group of a run reports to the user's code."""
    return "nccl" if mine.device == "cuda" else "gloo"


class AskedGroups:
    """Replacements for the functions of torch.distributed that make groups or return the backend.

    ``default`` is the backend that the default group reports. ``ours`` are the backends in whose
    place ddpkit's groups work.
    """

    REPLACED = ("new_group", "get_backend", "get_backend_config", "monitored_barrier")

    def __init__(self, default: str, ours: Collection[str]) -> None:
        self.default, self._ours = default, frozenset(ours)
        self._new_group, self._get_backend = dist.new_group, dist.get_backend
        self._monitored_barrier = dist.monitored_barrier
        self._get_backend_config = dist.get_backend_config
        # The kit keeps groups, because C++ may be the last holder: see `rank.script.joining`.
        self._kept: list[object] = []

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A block in which this object's functions replace those of torch.distributed."""
        with ExitStack() as undo:
            for name in self.REPLACED:
                replace(name, getattr(self, name), undo)
            yield

    def keep(self, group: dist.ProcessGroup | None) -> None:
        """Keep a reference to a group until the process or the run ends."""
        self._kept.append(group)

    def is_ours(self, backend: str) -> bool:
        """True if ddpkit's groups work in place of `backend`, such as "cpu:gloo,cuda:nccl"."""
        return self._ours.issuperset(part.rpartition(":")[2] for part in backend.lower().split(","))

    def new_group(
        self,
        ranks: Sequence[int] | None = None,
        timeout: object = None,
        backend: str | None = None,
        pg_options: object = None,
        *more: Any,
        **kwargs: Any,
    ) -> object:
        """Make a recorded group. If ddpkit cannot record the backend, torch makes the group."""
        if backend and not self.is_ours(backend):  # torch makes groups of backend "fake" for itself
            return self._new_group(ranks, timeout, backend, pg_options, *more, **kwargs)
        kwargs.pop("device_id", None)
        if absent.groups_made is not None:
            by_members = more[0] if more else kwargs.get("use_local_synchronization")
            absent.groups_made.made(ranks, bool(by_members))
        with asked_for(backend or self.default, self.default):
            group = self._new_group(ranks, GROUP_TIMEOUT, None, None, *more[:2], **kwargs)
        self.keep(group)
        if isinstance(group, RecordedGroup):
            group.answers_as = str(dist.Backend(backend or self.default))
        return group

    def get_backend(self, group: dist.ProcessGroup | None = None) -> str:
        """Return the backend that the user has requested; return ddpkit's to torch's own code."""
        found = self._get_backend(group)
        caller = sys._getframe(2)
        if module_of(caller) == DIFFERENTIABLE and self._asked(group) == dist.Backend.NCCL:
            return dist.Backend.NCCL  # torch compares by identity
        if is_torchs(caller) or not found.startswith("ddpkit"):
            return found
        return self._asked(group)

    def get_backend_config(self, group: dist.ProcessGroup | None = None) -> str:
        """Return the backend for each device type; return ddpkit's backends to torch's own code."""
        found = self._get_backend_config(group)
        if is_torchs(sys._getframe(2)) or "ddpkit" not in found:
            return str(found)
        return str(dist.distributed_c10d.BackendConfig(dist.Backend(self._asked(group))))

    def monitored_barrier(
        self,
        group: dist.ProcessGroup | None = None,
        timeout: object = None,
        wait_all_ranks: bool = False,
    ) -> None:
        """Make a plain barrier, because ddpkit monitors every barrier.

        Raises ValueError if the backend of the group is not gloo, as torch does.
        """
        if not isinstance(group or dist.group.WORLD, RecordedGroup):  # a group without this rank
            self._monitored_barrier(group, timeout, wait_all_ranks)
            return
        if self._asked(group) != "gloo":
            raise ValueError("monitored_barrier is only implemented for GLOO backend.")
        dist.barrier(group)

    def _asked(self, group: Any) -> str:
        group = group or dist.group.WORLD
        return group.answers_as if isinstance(group, RecordedGroup) else str(group.name())


def replace(
    name: str, replacement: Callable[..., object], undo: ExitStack, homes: Sequence[object] = HOMES
) -> None:
    """Replace a function of torch in all modules that contain it, until `undo` is closed."""
    original = getattr(homes[0], name)

    @functools.wraps(original)
    def wrapper(*args: object, **kwargs: object) -> object:
        return replacement(*args, **kwargs)

    for home in homes:
        if hasattr(home, name):
            undo.callback(setattr, home, name, getattr(home, name))
            setattr(home, name, wrapper)
