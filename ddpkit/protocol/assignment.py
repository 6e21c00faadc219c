"""The settings that the process of a rank gets at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

from ddpkit.machine import MachineModel
from ddpkit.protocol.alike import Alike

# The launcher sees a deadlock within seconds; gloo's own limit (30 minutes) would instead end a
# rank that rightly waits for a slow peer.
GROUP_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class Assignment:
    """The settings of one rank: its number, its run, and how it connects to the other ranks."""

    rank: int
    world_size: int
    local_rank: int  # the rank's number among the ranks of its host
    backend: str  # "gloo" or "nccl"
    device: str  # "cpu" or "cuda"
    seed: int  # the run's seed
    record: bool  # True if compute is recorded besides the calls
    script: bool = False  # True if the rank runs a script, which joins the group by itself
    speed: float = 1.0  # speed of the emulated machine, relative to this computer or to `machine`
    machine: MachineModel | None = None  # the model that counts the rank's compute
    values: bool = True  # False if operations on large tensors are only counted
    alike: Alike | None = None  # set if some of the ranks are copies, which do not run
    strict: bool = False  # True if the use of a tensor in flight raises an exception
    asked: frozenset[str] = frozenset()  # names of the exercises that are asked (`ddpkit.asked`)
    host_size: int = 0  # the number of ranks on a host of the emulated network; 0 without hosts

    @property
    def environment(self) -> dict[str, str]:
        """Torchrun's environment variables for this rank. Each emulated host counts as a node."""
        per_host = self.host_size or self.world_size
        host = self.rank // per_host
        known = {
            "RANK": self.rank,
            "LOCAL_RANK": self.local_rank,
            "GROUP_RANK": host,
            "ROLE_RANK": self.rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": min(per_host, self.world_size - host * per_host),
            "GROUP_WORLD_SIZE": -(-self.world_size // per_host),
            "ROLE_WORLD_SIZE": self.world_size,
        }
        return {name: str(number) for name, number in known.items()}


@dataclass(frozen=True)
class ProcessSettings:
    """Settings common to all processes of a run, if ddpkit's own launcher starts them."""

    folder: Path  # the run's folder, with the call, the rendezvous file and the black boxes
    threads: int  # torch's threads in each process
    environ: Mapping[str, str]
    cwd: str
    emulated: bool = False  # True if the timekeeper decides the time
    epoch_ns: int = 0  # the Unix time, in ns, at which emulated time is 0
    own_interpreters: bool = False  # True if each process begins as a new interpreter


@dataclass(frozen=True)
class RankPipes:
    """The pipes that the process of a rank inherits, so that it needs no listening port."""

    reply: Connection  # tells the launcher the function's result or exception
    output: Connection  # carries the printed text to the launcher
    crash: Connection  # carries faulthandler's last words to the launcher
    lifeline: Connection  # its end of file means that the launcher has ended
    main: Connection | None = None  # carries the main thread's questions to the timekeeper
    others: Connection | None = None  # carries the other threads' questions to the timekeeper
    typed: Connection | None = None  # the standard input of a script
