"""The time of the work that ranks report about themselves; the reports are plain data.

A report is called a program. It is a list with an entry for each act of a rank's main thread that
affects the rank's time on a modelled machine, in the order of the acts:

    ["work", kind, dtype, flops, bytes, times]   equal operations, one after another
    ["stated", ns]                               a call of `busy`
    ["post", number, op, bytes, group, members, seq, root, peer, tag]   a message or a collective
    ["exchange", number, op, sends, takes, group, members, seq]   an all-to-all of unequal parts
    ["wait", number]                             a wait until the operation `number` is done
    ["beyond", why]                              any other act: `program_ns` refuses the program

A rank of a run writes its own program (`ddpkit.rank.emulation.machine`). `program_ns` needs nothing
else of the run, neither times of a trace nor a clock, so it can judge reports of ranks that it does
not trust. Each program becomes a lane of a `Program`, which the engine plays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddpkit.link import LinkSpec
from ddpkit.machine import KINDS, MachineModel, MachineSpec, machines_of
from ddpkit.simulate.engine.operations import (
    AFTER_ALL,
    EXCHANGES,
    OPERATIONS,
    exchange_of,
    schedule_of,
)
from ddpkit.simulate.engine.play import play_program
from ddpkit.simulate.engine.program import Action, After, CollectivePart, MessageEnd, Program, Work

MESSAGES = ("send", "recv")
MOST = 100_000  # most entries of a program
MOST_NUMBER = 1 << 60  # limit for ns, bytes or FLOPs


def program_ns(
    programs: Sequence[Sequence[Any]], machine: MachineSpec, link: LinkSpec = "unlimited"
) -> int:
    """Return the time in ns that the reported programs of all ranks take on a modelled machine.

    The time is counted from a common start to the end of the last rank.

    programs  the report of each rank; the function checks all of it

    Raises ValueError for a machine with a device, for a report that is no program, and for ranks
    that wait forever.
    """
    world_size = len(programs)
    machines = machines_of(machine, world_size)
    for each in machines:
        if each.has_device:
            raise ValueError(
                f"program_ns needs machines with one processor, but {each} has a device of its own"
            )
    looked_at = [[_entry(each, world_size) for each in _listed(program)] for program in programs]
    lanes = [_lane(rank, each, machines[rank]) for rank, each in enumerate(looked_at)]
    played = play_program(Program.of_lanes("what the ranks say", lanes), link)
    if played.stuck:
        ranks = [stuck.rank for stuck in played.stuck]
        raise ValueError(f"the programs block forever on ranks {ranks}")
    return played.ns


def _lane(rank: int, program: Sequence[Sequence[Any]], machine: MachineModel) -> list[Action]:
    """Return a rank's reported program as a lane: a list of the engine's steps.

    Raises ValueError for a wait for an operation that was not posted before.
    """
    lane: list[Action] = []
    posted = set()
    for what, *facts in program:
        if what == "wait":
            if facts[0] not in posted:
                raise ValueError(f"rank {rank} waits for an operation that it has not posted")
            lane.append(After((facts[0],)))
        elif what == "work":
            kind, dtype, flops, nbytes, times = facts
            lane.append(Work(times * machine.cost_ns(kind, flops, nbytes, dtype), kind))
        elif what == "stated":
            lane.append(Work(facts[0]))
        else:
            posted.add(facts[0])
            lane.append(_posted(*facts) if what == "post" else _exchanged(rank, *facts))
    return lane


def _posted(
    number: int,
    op: str,
    nbytes: int,
    group: str,
    members: tuple[int, ...],
    seq: int,
    root: int | None,
    peer: int | None,
    tag: int,
) -> Action:
    if op in MESSAGES:
        return MessageEnd(f"i{op}", peer, nbytes, tag, group, number)
    first = members.index(root) if root is not None else 0
    schedule = schedule_of(op, nbytes, len(members), first)
    return CollectivePart(
        schedule, members, seq, nbytes, group,
        together=op == "barrier", after_all=op in AFTER_ALL, async_op=True, handle=number,
    )  # fmt: skip


def _exchanged(
    rank: int,
    number: int,
    op: str,
    sends: tuple[int, ...],
    takes: tuple[int, ...],
    group: str,
    members: tuple[int, ...],
    seq: int,
) -> Action:
    if rank not in members:
        raise ValueError(
            f"rank {rank} posts a collective of a group to which the rank does not belong"
        )
    schedule = exchange_of(op, members.index(rank), sends, takes)
    return CollectivePart(schedule, members, seq, sum(sends), group, async_op=True, handle=number)


# Checks of the entries, because a report may come from anybody


def _listed(program: Any) -> Sequence[Any]:
    if not isinstance(program, list | tuple) or len(program) > MOST:
        raise ValueError(f"a rank's program is not a list, or has more than {MOST} entries")
    return program


def _entry(entry: Any, world_size: int) -> list[Any]:
    """Return an entry of a program with checked values. Raises ValueError for a faulty entry."""
    if not isinstance(entry, list | tuple) or not entry:
        raise ValueError("an entry of a rank's program is not a list, or is an empty list")
    what, *facts = entry
    known = _LOOKS.get(what) if isinstance(what, str) else None
    if what == "beyond":
        raise ValueError(f"a rank's time cannot be recomputed: {str(facts[:1])[1:-1][:200]}")
    if known is None or len(facts) != len(known):
        raise ValueError(
            "an entry of a rank's program has an unknown kind, or a wrong number of values"
        )
    found = [what]
    for look, fact in zip(known, facts, strict=True):
        found.append(_LOOK_AT[look](fact, world_size))
    if what == "post":
        _, _, op, _, _, members, _, root, peer, _ = found
        if op not in MESSAGES and op.removesuffix("_coalesced") not in OPERATIONS:
            raise ValueError("a program posts an unknown operation")
        if op not in MESSAGES and (not members or root not in (None, *members)):
            raise ValueError("a collective has no members, or its root is not one of the members")
        if peer is None and op == "send":
            raise ValueError("a send has no peer")
    if what == "exchange":
        _, _, op, sends, takes, _, members, _ = found
        if op not in EXCHANGES or not len(sends) == len(takes) == len(members) > 0:
            raise ValueError(
                f"an exchange needs a known kind ({', '.join(sorted(EXCHANGES))}), and one part "
                "for each member"
            )
    return found


_LOOKS: Mapping[str, tuple[str, ...]] = {
    "work": ("kind", "word", "number", "number", "number"),
    "stated": ("number",),
    "post": (
        *("number", "word", "number", "word", "ranks", "number", "rank or none", "rank or none"),
        "number",
    ),
    "exchange": ("number", "word", "numbers", "numbers", "word", "ranks", "number"),
    "wait": ("number",),
}


def _number(fact: object, _: int) -> int:
    if type(fact) is not int or not 0 <= fact <= MOST_NUMBER:
        raise ValueError(
            "a rank's program has a number that is not an integer, or is below 0 or above 2**60"
        )
    return fact


def _numbers(fact: object, world_size: int) -> tuple[int, ...]:
    if not isinstance(fact, list | tuple) or len(fact) > world_size:
        raise ValueError(
            "the parts of an exchange must be a list of numbers, at most one number for each rank"
        )
    return tuple(_number(each, world_size) for each in fact)


def _word(fact: object, _: int) -> str:
    if not isinstance(fact, str) or len(fact) > 200:
        raise ValueError(
            "a dtype, an operation or a group in a rank's program is not a string, or is longer "
            "than 200 characters"
        )
    return fact


def _kind(fact: object, _: int) -> str:
    if fact not in KINDS:
        raise ValueError("a rank's program computes an unknown kind of work")
    return str(fact)


def _rank(fact: object, world_size: int) -> int:
    if type(fact) is not int or not 0 <= fact < world_size:
        raise ValueError("a program names a rank outside the run")
    return fact


def _ranks(fact: object, world_size: int) -> tuple[int, ...]:
    if not isinstance(fact, list | tuple) or len(fact) > world_size:
        raise ValueError(f"the members of a group must be a list of at most {world_size} ranks")
    return tuple(_rank(each, world_size) for each in fact)


def _rank_or_none(fact: object, world_size: int) -> int | None:
    return None if fact is None else _rank(fact, world_size)


_LOOK_AT = {
    "number": _number,
    "numbers": _numbers,
    "word": _word,
    "kind": _kind,
    "ranks": _ranks,
    "rank or none": _rank_or_none,
}
