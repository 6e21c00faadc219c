"""Run a schedule on links: when does each message leave and arrive?

Event by event, by the rules of `ddpkit.link`: one queue of arrivals, in the order of time. A send
lets its rank go on at once; a receive holds it until the last byte is in; adding takes no time.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping

from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.schedules import Schedule, Send, Step, elements
from ddpkit.trace import Span, Trace, match_peers

FLOAT32 = 4  # bytes


def time_of(
    schedule: Schedule,
    links: LinkSpec,
    *,
    itemsize: int = FLOAT32,
    starts: Mapping[int, int] | None = None,
) -> Trace:
    """The trace of a schedule on emulated links: every send and receive of every rank.

    ``itemsize`` is bytes per element; ``starts`` when a rank begins, in ns, 0 if not given.
    """
    links = Links.parse(links, schedule.world_size)
    machine = _Machine(schedule, links, itemsize, starts or {})
    machine.run()
    facts = {
        "backend": "simulated",
        "emulated": str(links),
        "algorithm": schedule.name,
        "operation": schedule.operation,
    }
    return Trace(match_peers(machine.spans), schedule.world_size, facts)


_Arrival = tuple[int, int, int, int, int, int]  # ns, round, number, from, to, bytes


class _Machine:
    """The state of all ranks and links while time goes on. Times in ns."""

    def __init__(
        self, schedule: Schedule, links: Links, itemsize: int, starts: Mapping[int, int]
    ) -> None:
        n = schedule.world_size
        self.links, self.itemsize = links, itemsize
        self.programs = [deque(schedule.of(rank)) for rank in range(n)]
        self.clock = [starts.get(rank, 0) for rank in range(n)]
        self.out_free, self.in_free = [0] * n, [0] * n
        self.arrivals: list[_Arrival] = []
        self.mail: dict[tuple[int, int], deque[int]] = defaultdict(deque)  # -> ns of last bytes
        self.sent = 0
        self.spans: list[Span] = []

    def run(self) -> None:
        for rank in range(len(self.programs)):
            self.advance(rank)
        while self.arrivals:
            arrival, _, _, src, dst, nbytes = heapq.heappop(self.arrivals)
            wire = self.links[dst].wire_ns(nbytes)
            self.in_free[dst] = max(arrival, self.in_free[dst]) + wire
            self.mail[src, dst].append(self.in_free[dst])
            self.advance(dst)
        stuck = [rank for rank, program in enumerate(self.programs) if program]
        if stuck:
            raise ValueError(f"the schedule waits for ever on ranks {stuck}")

    def advance(self, rank: int) -> None:
        """Take the rank's steps until it waits for a message that is not in yet."""
        program = self.programs[rank]
        while program:
            step = program[0]
            if isinstance(step, Send):
                self.send(step)
            elif self.mail[step.peer, rank]:
                self.receive(step, self.mail[step.peer, rank].popleft())
            else:
                return
            program.popleft()

    def send(self, step: Send) -> None:
        rank, nbytes = step.rank, elements(step.part) * self.itemsize
        link = self.links[rank]
        leaves = max(self.clock[rank], self.out_free[rank])
        self.out_free[rank] = leaves + link.wire_ns(nbytes)
        arrival = link.arrival_ns(self.links[step.peer], nbytes, leaves)
        self.sent += 1  # arrivals at one time come in the order of their rounds, then of posting
        heapq.heappush(self.arrivals, (arrival, step.round, self.sent, rank, step.peer, nbytes))
        self.note(step, "isend", self.out_free[rank])

    def receive(self, step: Step, last_byte: int) -> None:
        end = max(self.clock[step.rank], last_byte)
        self.note(step, "recv", end)
        self.clock[step.rank] = end

    def note(self, step: Step, name: str, end: int) -> None:
        start = self.clock[step.rank]
        self.spans.append(
            Span(
                step.rank,
                "comm",
                name,
                "comm",
                start,
                end,
                bytes=elements(step.part) * self.itemsize,
                peer=step.peer,
                blocked_ns=start if name == "recv" else None,
                args={"round": step.round, "start": step.part[0], "stop": step.part[1]},
            )
        )
