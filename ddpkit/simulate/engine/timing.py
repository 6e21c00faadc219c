"""The trace of a schedule on links: the times at which each message leaves and arrives.

A schedule is a program in which each rank has one lane without work. The engine plays it event by
event, by the rules of `ddpkit.link`. After a send the rank goes on at once; in a receive the rank
waits until the last byte has arrived; adding takes no time.
"""

from collections.abc import Iterator, Mapping

from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.engine.play import play_program
from ddpkit.simulate.engine.posted import Part
from ddpkit.simulate.engine.program import Program
from ddpkit.simulate.messages.schedules import Schedule, Send
from ddpkit.trace import Span, Trace, match_peers

FLOAT32 = 4  # bytes of a float32


def time_of(
    schedule: Schedule,
    links: LinkSpec,
    *,
    itemsize: int = FLOAT32,
    starts: Mapping[int, int] | None = None,
) -> Trace:
    """Return the trace of a schedule on emulated links: every send and receive of every rank.

    ``itemsize`` is the number of bytes per element; ``starts`` has the times at which ranks begin,
    in ns; a rank without a time begins at 0. Raises ValueError for a schedule in which a rank waits
    forever.
    """
    links = Links.parse(links, schedule.world_size)
    facts = {
        "backend": "simulated",
        "emulated": str(links),
        "algorithm": schedule.name,
        "operation": schedule.operation,
    }
    spans = [span for part in played(schedule, links, itemsize, starts) for span in _spans(part)]
    return Trace(match_peers(spans), schedule.world_size, facts)


def makespan_ns(schedule: Schedule, links: Links, itemsize: int) -> int:
    """Return the time of a schedule from the common start to the last rank's end, in ns."""
    return max(part.done_ns for part in played(schedule, links, itemsize, keep_ends=False))


def played(
    schedule: Schedule,
    links: Links,
    itemsize: int,
    starts: Mapping[int, int] | None = None,
    *,
    keep_ends: bool = True,
) -> list[Part]:
    """Play a schedule to its end, and return each rank's part in it, with its messages' times."""
    done = play_program(Program.of_schedule(schedule, itemsize, starts), links, keep_ends=keep_ends)
    if done.stuck:
        ranks = [stuck.rank for stuck in done.stuck]
        raise ValueError(
            f"in this schedule, the ranks {ranks} wait forever: a send or a recv has no partner"
        )
    return list(done.collective_parts)


def _spans(part: Part) -> Iterator[Span]:
    for step, end in part.ends:
        name = "isend" if isinstance(step, Send) else "recv"
        yield Span(
            part.rank,
            "comm",
            name,
            "comm",
            end.posted_ns,
            end.done_ns,
            bytes=end.nbytes,
            peer=step.peer,
            blocked_ns=end.posted_ns if name == "recv" else None,
            args={"round": step.round, "start": step.part[0], "stop": step.part[1]},
        )
