"""The job of ranks started by torchrun, and the exchanges between the job's ranks.

`ddpkit.cluster.torchrun.run` makes runs on the job. `active()` returns True if there is a job,
without importing torch.
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
    """True if a launcher started the process as a rank."""
    return all(name in os.environ for name in LAUNCHED)


def only_rank_0_prints() -> None:
    """Drop all further prints of the script on all ranks but rank 0. In a run, all ranks print."""
    if os.environ["RANK"] != "0" and sys.stdout is sys.__stdout__:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open for as long as the script runs


@cache
def say_once(text: str) -> None:
    """Print a text at the first call only; later calls with the same text print nothing."""
    print(text)


class NotUnderTorchrun(ClusterError):
    """Raised if a check's run is impossible on the job's ranks.

    The judge of an exercise catches this error, and prints the `reason`.
    """

    reason: str


class TooFewRanks(NotUnderTorchrun):
    """Raised if a check's run needs more ranks than the job has."""

    reason = "torchrun started too few ranks"


class NoEmulatedTime(NotUnderTorchrun):
    """Raised if a check judges by emulated time, which ranks of torchrun do not have."""

    reason = "under torchrun there is no emulated time, by which the check judges"


@contextmanager
def checking() -> Iterator[None]:
    """Raise TooFewRanks in the block if a run needs more ranks than the job has.

    Outside the block, such a run is skipped, with empty results. A check would mistake these empty
    results for a wrong answer.
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
    """The ranks of the job, with a separate gloo group for the exchange of replies.

    `hosts` are the ranks of each host, rank 0's host first. After a restart by torchrun, `restart`
    is the number of the restart: "1 of 2".
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
        self.skipped = set[int]()  # world sizes of skipped runs; a later skip prints a short text
        self.checking = False
        atexit.register(self.leave)
        only_rank_0_prints()
        if self.restart:
            print(f"Restart {self.restart}: torchrun has started all ranks again.", flush=True)
        sys.excepthook = self._uncaught

    def _host_names(self, seats: Sequence[Seat]) -> list[str]:
        """Return the name of each rank's host; "" for each rank if the job has only one host."""
        return [seat.host if len(self.hosts) > 1 else "" for seat in seats]

    def _speaks_for_its_host(self) -> bool:
        """True if the rank is the lowest on the host, apart from rank 0."""
        return bool(self.rank) and self.rank == min(filter(None, self.on_this_host()))

    def fail(self, error: BaseException) -> NoReturn:
        """Record the error in torchrun's report, and exit; rank 0 prints the explanation."""
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        said = report(error)
        if not is_echo(said):
            get_error_handler().record_exception(error)
        self.messenger.raised(said)

    def _uncaught(self, _: object, error: BaseException, traceback: object) -> None:
        """Report an uncaught error of the script.

        The same error often ends the script on all ranks, and rank 0 prints a single explanation.
        """
        try:
            raise error  # torchrun's report needs a current exception
        except BaseException:
            self.fail(error)

    def leave(self) -> None:
        """Send a goodbye, so that the end of the rank does not count as a failure.

        The method also ends gloo's threads before the interpreter ends. A thread that frees a
        tensor after the end of the interpreter aborts the process.
        """
        self.messenger.leave()
        if self.watcher is not None:
            self.watcher.leave()
        self.control = None
        gc.collect()

    def on_this_host(self) -> list[int]:
        """Return the ranks of the job on the current rank's host."""
        return next(ranks for ranks in self.hosts if self.rank in ranks)

    def agree(self, mine: Place) -> Place:
        """Return the device and the backend for all hosts' ranks: NCCL if all hosts can use it.

        Raises ClusterError if the ranks do not all compute on the same device.
        """
        places: list[Place] = [pickle.loads(data) for data in self.all_gather(pickle.dumps(mine))]
        if len({place.device for place in places}) > 1:
            said = ", ".join(f"rank {rank}: {place.device}" for rank, place in enumerate(places))
            raise ClusterError(
                f"all ranks need the same device ({said}): set device= or {VARIABLE}"
            )
        return min(places, key=lambda place: place.backend)  # "gloo" sorts before "nccl"

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of every rank, on every rank."""
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
    """Return the job of the current process. The first call joins the job."""
    return TorchrunJob()
