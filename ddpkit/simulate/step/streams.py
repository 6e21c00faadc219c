"""The times of all_reduces in several process groups, which take the buckets in turns.

The groups share the links.

Within a group, all_reduces go one after another; all_reduces of different groups move at the same
time. If one stream fills a link, further streams hide latencies, but do not move bytes faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ddpkit.link import Links
from ddpkit.simulate.engine.play import play_program
from ddpkit.simulate.engine.posted import Part
from ddpkit.simulate.engine.prices import MOST_EVENTS
from ddpkit.simulate.engine.program import Action, After, CollectivePart, Program, Work
from ddpkit.simulate.messages.schedules import Recv, Schedule, Send
from ddpkit.simulate.messages.schedules import Step as Move
from ddpkit.simulate.step.buckets import Bucket
from ddpkit.simulate.step.events import step_program
from ddpkit.simulate.step.recorded import Step


def streamed(
    steps: Sequence[Step],
    links: Links,
    buckets: Sequence[Bucket],
    posted_ns: Sequence[int],
    algorithm: str,
    streams: int,
) -> list[int]:
    """Return the time at which each bucket's all_reduce ends on all ranks.

    Times are in ns from the start of the step.

    ``posted_ns`` has the time at which the last rank posts each bucket. Up to 64 ranks are played
    message by message. More ranks must use rings on equal links: then the simulation has a single
    rank, which sends to itself and stands for all ranks, with chunks rounded up to whole bytes.
    Raises ValueError for more than 64 ranks with other algorithms or links.
    """
    if len(links) <= MOST_EVENTS:
        program = step_program(steps, buckets, algorithm, streams)
    elif links.equal and algorithm == "ring":
        program = _one_for_all(len(links), buckets, posted_ns, streams)
        links = Links(links.each[:1])
    else:
        raise ValueError(
            f"{streams} streams on more than {MOST_EVENTS} ranks can be simulated only with the "
            f"algorithm ring on equal links, not with {algorithm} on {links}"
        )
    parts: dict[int, list[Part]] = defaultdict(list)
    for part in play_program(program, links).collective_parts:
        key: Any = part.play.key
        group, turn = key
        parts[turn * streams + int(group or 0)].append(part)
    return [max(part.done_ns for part in parts[number]) for number in range(len(buckets))]


def _one_for_all(
    world_size: int, buckets: Sequence[Bucket], posted_ns: Sequence[int], streams: int
) -> Program:
    """Return the program of one rank that stands for many equal ranks, and sends to itself."""
    lane: list[Action] = []
    at = 0
    for number, (bucket, posted) in enumerate(zip(buckets, posted_ns, strict=True)):
        turn, stream = divmod(number, streams)
        plan = _ring_of_one(-(-bucket.bytes // world_size), 2 * (world_size - 1))
        part = CollectivePart(plan, (0,), turn, group=str(stream), async_op=True, handle=number)
        lane += [Work(posted - at, ""), part]
        at = posted
    return Program.of_lanes("one for all", [[*lane, After(tuple(range(len(buckets))))]])


@lru_cache(64)
def _ring_of_one(chunk: int, rounds: int) -> Schedule:
    """Return a schedule of `rounds` rounds, in each of which a rank sends a chunk to itself."""
    steps: list[Move] = []
    for number in range(rounds):
        steps += [Send(0, 0, (0, chunk), number), Recv(0, 0, (0, chunk), number)]
    return Schedule("ring", "all_reduce", 1, chunk, tuple(steps))
