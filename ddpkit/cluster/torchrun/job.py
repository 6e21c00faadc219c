"""The job of ranks that torchrun has started, and what its ranks tell each other.

`torchrun` makes runs on it. Whoever asks only whether there is one, `active()`, loads no torch.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from ddpkit.cluster.blame import is_echo
from ddpkit.cluster.devices import VARIABLE, Place
from ddpkit.cluster.torchrun import attempt, connections, hosts
from ddpkit.cluster.torchrun.hosts import Seat
from ddpkit.cluster.torchrun.messenger import Messenger
from ddpkit.cluster.torchrun.watcher import Watcher
from ddpkit.errors import ClusterError, Death
from ddpkit.protocol.assignment import GROUP_TIMEOUT
from ddpkit.rank.report import report

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def active() -> bool:
    """Whether this process is a rank that a launcher started."""
    return all(name in os.environ for name in LAUNCHED)


def only_rank_0_prints() -> None:
    """Drop what the script prints on the other ranks from here on; inside a run all ranks print."""
    if os.environ["RANK"] != "0" and sys.stdout is sys.__stdout__:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open for as long as the script runs


@cache
def say_once(text: str) -> None:
    """Print a text once in a job, however often it is true."""
    print(text)


class NotUnderTorchrun(ClusterError):
    """A check's run cannot be made on these ranks. The judge catches it, and says the `reason`."""

    reason: str


class TooFewRanks(NotUnderTorchrun):
    """A check's run needs more ranks than there are."""

    reason = "torchrun started too few ranks"


class NoEmulatedTime(NotUnderTorchrun):
    """A check judges by emulated time, which ranks of torchrun do not have."""

    reason = "under torchrun there is no emulated time, by which the check judges"


@contextmanager
def checking() -> Iterator[None]:
    """A block in which a run that needs more ranks than there are raises TooFewRanks.

    Elsewhere such a run is skipped. To a check, a run without results would be a wrong answer.
    """
    here = job() if active() else None
    if here is not None:
        here.checking = True
    try:
        yield
    finally:
        if here is not None:
            here.checking = False


class TorchrunJob:
    """The ranks of this job, and a group of their own to exchange replies over.

    `hosts` are the ranks of each host, rank 0's first. `restart` says which attempt of the job this
    is, "1 of 2", after a restart by torchrun.
    """

    def __init__(self) -> None:
        import torch.distributed as dist
        from torch.distributed import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        whole, self.rank, self.size = next(rendezvous("env://"))
        self.store = attempt.own_part(whole, self.rank, self.size)
        store = PrefixStore("ddpkit", self.store)
        seats = hosts.meet(store, self.rank, self.size)
        self.hosts = hosts.by_host(seats)
        self.restart = attempt.in_words(seat.restarts for seat in seats)
        control = PrefixStore("control", store)
        self.control: Any = dist.ProcessGroupGloo(control, self.rank, self.size, GROUP_TIMEOUT)
        line, lines = connections.connect(store, self.rank, self.size, seats[0].address)
        names = self._host_names(seats)
        gone = Death("gone", host=names[0]) if self._speaks_for_its_host() else None
        self.messenger = Messenger(self.rank, line, gone)
        self.watcher = Watcher(lines, names) if self.rank == 0 else None
        self.runs = 0
        self.skipped = set[int]()  # for want of so many ranks: said in full once
        self.checking = False
        atexit.register(self.leave)
        only_rank_0_prints()
        if self.restart:
            print(f"Restart {self.restart}: torchrun has started all ranks again.", flush=True)
        sys.excepthook = self._uncaught

    def _host_names(self, seats: Sequence[Seat]) -> list[str]:
        """The name of each rank's host, where there are several; else "", which nobody reads."""
        return [seat.host if len(self.hosts) > 1 else "" for seat in seats]

    def _speaks_for_its_host(self) -> bool:
        """Whether this rank is the first of its host, rank 0 left out."""
        return bool(self.rank) and self.rank == min(filter(None, self.on_this_host()))

    def fail(self, error: BaseException) -> NoReturn:
        """Say why this rank cannot go on: to torchrun's report, and to rank 0, which explains."""
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        said = report(error)
        if not is_echo(said):
            get_error_handler().record_exception(error)
        self.messenger.raised(said)

    def _uncaught(self, _: object, error: BaseException, traceback: object) -> None:
        """All ranks run the script, so they mostly fail alike; it is said once."""
        try:
            raise error  # torchrun's report wants the exception that is being handled
        except BaseException:
            self.fail(error)

    def leave(self) -> None:
        """Say goodbye, so that nobody takes the end of this rank for a failure.

        End gloo's threads before the interpreter ends: one that lets go of a tensor later, when
        there is no interpreter any more to ask, aborts the process.
        """
        self.messenger.leave()
        if self.watcher is not None:
            self.watcher.leave()
        self.control = None
        gc.collect()

    def on_this_host(self) -> list[int]:
        """The ranks of the job on this rank's host."""
        return next(ranks for ranks in self.hosts if self.rank in ranks)

    def agree(self, mine: Place) -> Place:
        """A place for the ranks of all hosts: NCCL if every host has GPUs enough for it.

        Raises ClusterError if some compute on the CPU and others do not.
        """
        places: list[Place] = [pickle.loads(data) for data in self.all_gather(pickle.dumps(mine))]
        if len({place.device for place in places}) > 1:
            said = ", ".join(f"rank {rank}: {place.device}" for rank, place in enumerate(places))
            raise ClusterError(
                f"all ranks need the same device ({said}): set device= or {VARIABLE}"
            )
        return min(places, key=lambda place: place.backend)  # "gloo" before "nccl"

    def all_gather(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, on every rank."""
        import torch

        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self.control.allgather([sizes], [torch.tensor([len(data)])]).wait()
        longest = max(int(size) for size in sizes)
        mine = torch.zeros(longest, dtype=torch.uint8)
        if data:
            mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        all_data = [torch.empty_like(mine) for _ in range(self.size)]
        self.control.allgather([all_data], [mine]).wait()
        return [
            bytes(tensor[: int(size)].numpy()) for tensor, size in zip(all_data, sizes, strict=True)
        ]


@cache
def job() -> TorchrunJob:
    """The job that this process belongs to, joined at the first call."""
    return TorchrunJob()
