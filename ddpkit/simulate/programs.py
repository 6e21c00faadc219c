"""Programs of ranks as plain data, and the time that they take on a modelled machine.

A program has an entry for everything that moves a rank's clock where compute is counted, in the
order in which its main thread came by:

    ["work", kind, dtype, flops, bytes, times]   operations alike, one after the other
    ["stated", ns]                               `busy`
    ["post", number, op, bytes, group, members, seq, root, peer, tag]   a message or a collective
    ["wait", number]                             until that one is done
    ["beyond", why]                              what cannot be told so: `program_ns` refuses it

A rank of a run writes its own (`ddpkit.rank.emulation.machine`), and `program_ns` needs nothing of
that run: no time in a trace, no clock. So it judges what a stranger's ranks say that they did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddpkit.link import Links, LinkSpec
from ddpkit.machine import KINDS, MachineSpec, machines_of
from ddpkit.simulate.network import Network
from ddpkit.simulate.operations import OPERATIONS, schedule_of
from ddpkit.simulate.posted import UNKNOWN, End, Part

MESSAGES = ("send", "recv")
MOST = 100_000  # entries of a program
MOST_NUMBER = 1 << 60  # of ns, bytes or FLOPs


def program_ns(
    programs: Sequence[Sequence[Any]], machine: MachineSpec, link: LinkSpec = "unlimited"
) -> int:
    """How long programs take that all ranks begin together, in ns, to the last rank's end.

    programs  one for each rank; may be a stranger's

    Raises ValueError, in a sentence, for what is no program, and for ranks that wait for ever.
    """
    world_size = len(programs)
    machines, links = machines_of(machine, world_size), Links.parse(link, world_size)
    network = Network(links)
    looked_at = [[_entry(each, world_size) for each in _listed(program)] for program in programs]
    ranks = [
        _PlayedRank(rank, each, machines[rank], network) for rank, each in enumerate(looked_at)
    ]
    for rank in ranks:
        rank.go_on()
    network.advance()
    if stuck := [rank.rank for rank in ranks if rank.left]:
        raise ValueError(f"the programs wait for ever on ranks {stuck}")
    return max((rank.ns for rank in ranks), default=0)


class _PlayedRank:
    """A rank that takes the entries of its program one after the other."""

    def __init__(self, rank: int, program: list[list[Any]], machine: Any, network: Network) -> None:
        self.rank, self._machine, self._network = rank, machine, network
        self.left = program[::-1]
        self.ns = 0
        self._posted: dict[int, End | Part] = {}

    def go_on(self, *_: object) -> None:
        """Go on until something is waited for that is not done."""
        while self.left:
            what, *facts = self.left[-1]
            if what == "wait":
                if facts[0] not in self._posted:
                    raise ValueError(f"rank {self.rank} waits for what it has not posted")
                awaited: Any = self._posted[facts[0]]
                if awaited.done_ns == UNKNOWN:
                    awaited.then = self.go_on
                    return
                self.ns = max(self.ns, awaited.done_ns)
            elif what == "work":
                kind, dtype, flops, nbytes, times = facts
                self.ns += times * self._machine.cost_ns(kind, flops, nbytes, dtype)
            elif what == "stated":
                self.ns += facts[0]
            else:
                self._posted[facts[0]] = self._post(*facts[1:])
            self.left.pop()

    def _post(
        self,
        op: str,
        nbytes: int,
        group: str,
        members: tuple[int, ...],
        seq: int,
        root: int | None,
        peer: int | None,
        tag: int,
    ) -> End | Part:
        network, ns = self._network, self.ns
        if op == "send":
            if peer is None:
                raise ValueError("a send has no peer")
            return network.send(ns, group, self.rank, peer, nbytes, tag)
        if op == "recv":
            return network.recv(ns, group, self.rank, peer, nbytes, tag)
        first = members.index(root) if root is not None else 0
        schedule = schedule_of(op, nbytes, len(members), first)
        together = op == "barrier"
        return network.enter(ns, group, seq, self.rank, members, schedule, together=together)


# What a stranger may say


def _listed(program: Any) -> Sequence[Any]:
    if not isinstance(program, list | tuple) or len(program) > MOST:
        raise ValueError("a rank's program is no list, or far too long")
    return program


def _entry(entry: Any, world_size: int) -> list[Any]:
    """An entry, looked at; raises ValueError."""
    if not isinstance(entry, list | tuple) or not entry:
        raise ValueError("an entry of a program is no list")
    what, *facts = entry
    known = _LOOKS.get(what) if isinstance(what, str) else None
    if what == "beyond":
        raise ValueError(f"its time cannot be recomputed: {str(facts[:1])[1:-1][:200]}")
    if known is None or len(facts) != len(known):
        raise ValueError("an entry of a program is of no kind")
    found = [what]
    for look, fact in zip(known, facts, strict=True):
        found.append(_LOOK_AT[look](fact, world_size))
    if what == "post":
        _, _, op, _, _, members, _, root, peer, _ = found
        if op not in MESSAGES and op.removesuffix("_coalesced") not in OPERATIONS:
            raise ValueError("a program posts what is no operation")
        if op not in MESSAGES and (not members or root not in (None, *members)):
            raise ValueError("a collective has no members, or a root that is none")
        if peer is None and op == "send":
            raise ValueError("a send has no peer")
    return found


_LOOKS: Mapping[str, tuple[str, ...]] = {
    "work": ("kind", "word", "number", "number", "number"),
    "stated": ("number",),
    "post": (
        *("number", "word", "number", "word", "ranks", "number", "rank or none", "rank or none"),
        "number",
    ),
    "wait": ("number",),
}


def _number(fact: Any, _: int) -> int:
    if type(fact) is not int or not 0 <= fact <= MOST_NUMBER:
        raise ValueError("a number in a program is none, or below 0")
    return fact


def _word(fact: Any, _: int) -> str:
    if not isinstance(fact, str) or len(fact) > 200:
        raise ValueError("a word in a program is none")
    return fact


def _kind(fact: Any, _: int) -> str:
    if fact not in KINDS:
        raise ValueError("a program computes what is of no kind")
    return str(fact)


def _rank(fact: Any, world_size: int) -> int:
    if type(fact) is not int or not 0 <= fact < world_size:
        raise ValueError("a program names a rank that is none")
    return fact


def _ranks(fact: Any, world_size: int) -> tuple[int, ...]:
    if not isinstance(fact, list | tuple) or len(fact) > world_size:
        raise ValueError("the members of a group are no ranks")
    return tuple(_rank(each, world_size) for each in fact)


def _rank_or_none(fact: Any, world_size: int) -> int | None:
    return None if fact is None else _rank(fact, world_size)


_LOOK_AT = {
    "number": _number,
    "word": _word,
    "kind": _kind,
    "ranks": _ranks,
    "rank or none": _rank_or_none,
}
