"""Programs of hosts that launch on devices, written as in torch. Times are in us."""

from __future__ import annotations

from collections.abc import Iterable

from ddpkit.link import LinkSpec
from ddpkit.simulate import (
    After,
    CollectivePart,
    Launch,
    MessageEnd,
    Played,
    Program,
    Queues,
    Work,
    play_program,
)
from ddpkit.simulate.engine.device import COMPUTE
from ddpkit.simulate.engine.operations import schedule_of
from ddpkit.simulate.engine.program import Action
from ddpkit.simulate.engine.queues import DEFAULT

Times = tuple[float, float]  # start and end of an item
BYTES = "1 GB/s"  # a link that moves 1 kB in 1 us


class Host:
    """A rank's host. Each call takes ``launch`` us of the host; items are known by names."""

    def __init__(self, rank: int = 0, ranks: int = 1, launch: float = 10) -> None:
        self.rank, self.ranks, self.queues = rank, ranks, Queues[str]()
        self.steps: list[Action] = []
        self._launch_ns, self._seqs = round(launch * 1000), dict[str, int]()

    def launch(self) -> None:
        """Spend the host's time for a launch."""
        self.steps.append(Work(self._launch_ns, ""))

    def kernel(
        self, name: str, us: float, on: str = DEFAULT, place: str = COMPUTE, priority: int = 0
    ) -> str:
        """Launch a kernel, or a copy, on a stream."""
        self.launch()
        with self.queues.on(on):
            follows = self.queues.launch(name)
        self.steps.append(Launch(round(us * 1000), name, place, follows, name, priority))
        return name

    def collective(
        self,
        name: str,
        op: str,
        nbytes: int,
        *,
        blocking: bool = True,
        on: str = DEFAULT,
        group: str = "",
        members: tuple[int, ...] | None = None,
    ) -> str:
        """Post a collective of NCCL's; ``nbytes`` are the bytes that this rank hands in.

        On two ranks and a link of `BYTES`, an all_reduce or an all_gather of 1 kB takes 1 us, a
        reduce_scatter half of this time.
        """
        members = tuple(range(self.ranks)) if members is None else members
        self.launch()
        with self.queues.on(on):
            follows = self.queues.collective(name, group, blocking=blocking)
        seq = self._seqs[group] = self._seqs.get(group, -1) + 1
        schedule = schedule_of(op, nbytes, len(members))
        self.steps.append(
            CollectivePart(
                *(schedule, members, seq, nbytes, group),
                together=op == "barrier",
                async_op=True,
                handle=name,
                follows=follows,
                facts={"name": name},
            )
        )
        return name

    def message(self, name: str, op: str, peer: int, nbytes: int) -> str:
        """Post an isend or irecv on the queue of its pair of ranks, behind the current stream."""
        self.launch()
        pair = f"{min(self.rank, peer)}:{max(self.rank, peer)}"
        follows = self.queues.collective(name, pair, blocking=False)
        facts = {"name": name}
        step = MessageEnd(op, peer, nbytes, handle=name, follows=follows, facts=facts)
        self.steps.append(step)
        return name

    def follow(self, *items: str, stream: str = DEFAULT) -> None:
        """Let a stream wait for items, as torch does for an event or a Work."""
        self.queues.follow(items, stream)

    def wait(self, *items: str) -> None:
        """Let the host wait for items."""
        self.steps.append(After(items))

    def synchronize(self) -> None:
        """Let the host wait for its device."""
        self.wait(*self.queues.everything())


class Ran:
    """Times of a played program: ``host[rank]``, and items by their names."""

    def __init__(self, played: Played) -> None:
        self.played, self.host = played, [ns / 1000 for ns in played.ends_ns]
        self._of: dict[tuple[int, object], Times] = {}
        for step, item in played.items:
            if item.done_ns >= 0:
                self._of[item.rank, step.handle] = item.start_ns / 1000, item.done_ns / 1000
        for span in played.spans:
            if "name" in span.args:
                times = span.start_ns / 1000, span.end_ns / 1000
                self._of[span.rank, span.args["name"]] = times

    def __getitem__(self, names: str | Iterable[str]) -> Times | list[Times]:
        if isinstance(names, str):
            return self.of(0, names)
        return [self.of(0, name) for name in names]

    def of(self, rank: int, name: str) -> Times:
        """Return the start and the end of a rank's item."""
        return self._of[rank, name]

    @property
    def unended(self) -> set[object]:
        """Return the names of the items that never end."""
        return {each.step.handle for each in self.played.unended}  # type: ignore[union-attr]


def ran(*hosts: Host, link: LinkSpec = BYTES) -> Ran:
    """Play the programs of hosts."""
    lanes = [host.steps for host in hosts]
    return Ran(play_program(Program.of_lanes("hosts", lanes), link))
