"""The function of a run, and the settings of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddpkit import asked
from ddpkit.cluster.devices import Place
from ddpkit.errors import LastSeen
from ddpkit.link import Links
from ddpkit.machine import MachineModel
from ddpkit.protocol.alike import Alike
from ddpkit.protocol.assignment import Assignment


@dataclass(frozen=True)
class Request:
    """The function of a run, and the settings of its ranks."""

    world_size: int
    payload: list[Any]  # the function and its arguments, packed by `ship.pack_call`
    function: tuple[str, str, int]  # name, file and first line of the function
    place: Place
    threads: int
    seed: int
    timeout: float | None
    record: bool
    links: Links | None
    speeds: tuple[float, ...] = ()  # speeds of the emulated machines
    script: bool = False  # True if the function is a script (`rank.script`)
    machines: tuple[MachineModel, ...] = ()  # models of the machines that count compute
    values: bool = True  # False if operations on large tensors are only counted
    alike: Alike | None = None  # set if some of the ranks are copies of other ranks
    strict: bool = False  # True if a rank raises where its code uses a tensor in flight

    @property
    def processes(self) -> int:
        """The number of running ranks."""
        return self.world_size if self.alike is None else self.alike.present

    def assignment(self, rank: int, local_rank: int) -> Assignment:
        """Return the settings of rank `rank` in the run; `local_rank` is its number on its host."""
        return Assignment(
            rank=rank,
            world_size=self.world_size,
            local_rank=local_rank,
            backend=self.place.backend,
            device=self.place.device,
            seed=self.seed,
            record=self.record,
            speed=self.speeds[rank] if self.speeds else 1.0,
            script=self.script,
            machine=self.machines[rank] if self.machines else None,
            host_size=self.host_size,
            values=self.values,
            alike=self.alike,
            strict=self.strict,
            asked=asked.now(),
        )

    @property
    def host_size(self) -> int:
        """The number of ranks on a host of the emulated network; 0 without hosts."""
        return self.links.hosts.size if self.links and self.links.hosts else 0

    @property
    def somewhere(self) -> LastSeen:
        """The place of a rank that has not reported a line yet: somewhere in the function."""
        name, filename, line = self.function
        return LastSeen((filename, line), "function", function=name)
