"""`Alike`: a job in which only the first ranks run; each other rank is a copy of one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpkit.link import Links


@dataclass(frozen=True, slots=True)
class Alike:
    """A job in which rank r does the same work as rank r mod `present`, at the same time."""

    world_size: int
    present: int  # the number of running ranks

    def __str__(self) -> str:
        """Return the text for the fact "alike" of a trace."""
        return (
            f"{self.present} of {self.world_size} ranks ran, and rank r is a copy of rank r mod "
            f"{self.present}"
        )

    def check(self, links: Links, machines: Sequence[object], speeds: Sequence[float]) -> None:
        """Raise ValueError if a rank and its copy differ in machine, link or speed.

        Also raise ValueError if `present` does not divide the number of ranks, or if the ranks of
        one host are not all running or all copies.
        """
        n, k = self.world_size, self.present
        if not 1 <= k <= n or n % k:
            raise ValueError(f"alike={k} of {n} ranks: give a divisor of {n}")
        hosts = links.hosts
        if hosts is not None and links.host_count > 1 and k % hosts.size:
            raise ValueError(
                f"alike={k} on hosts of {hosts.size} ranks: give a multiple of {hosts.size}, so "
                "that whole hosts are copied"
            )
        for what, of in (("machine", machines), ("link", links.each), ("speed", speeds)):
            for rank, mine in enumerate(of):
                if mine != of[rank % k]:
                    raise ValueError(
                        f"alike={k} makes rank {rank} a copy of rank {rank % k}, but the ranks "
                        f"have different {what}s"
                    )

    def running(self, members: Iterable[int]) -> tuple[int, ...]:
        """Return the ranks of a group that run, and are not copies."""
        return tuple(rank for rank in members if rank < self.present)

    def check_group(self, members: Sequence[int]) -> None:
        """Raise ValueError if a group has unequal numbers of copies of its running ranks.

        The copies must also be in the order of the running ranks. A group without running ranks is
        allowed.
        """
        here = self.running(members)
        originals = [rank % self.present for rank in members]
        if here and originals != [*here] * (len(members) // len(here)):
            raise ValueError(
                f"the group {short(members)} does not repeat its originals evenly: with "
                f"alike={self.present}, its ranks are copies of ranks {short(originals)}. Make a "
                f"group of ranks below {self.present} only, or a group with equally many copies "
                "of each original, in order"
            )

    def first_copy(self, members: Sequence[int]) -> tuple[int, ...]:
        """Return the group of which a group without running ranks is a copy.

        The method subtracts the same multiple of `present` from each rank, so that the lowest
        member becomes a running rank.
        """
        start = min(members) // self.present * self.present
        return tuple(rank - start for rank in members)


def short(ranks: Sequence[int]) -> str:
    """Return a list of ranks as text: "[0, 8, 16, ..., 504]"."""
    if len(ranks) <= 8:
        return str([*ranks])
    return f"[{', '.join(map(str, ranks[:4]))}, ..., {ranks[-1]}]"
