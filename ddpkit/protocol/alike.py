"""`Alike`: only the first ranks of a job run, and every other rank is a copy of a running rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpkit.link import Links


@dataclass(frozen=True, slots=True)
class Alike:
    """Rank r of `world_size` does the work of rank r mod `present`, at the same time."""

    world_size: int
    present: int  # the number of running ranks

    def __str__(self) -> str:
        """Return the text of the fact "alike"."""
        return (
            f"{self.present} of {self.world_size} ranks ran, and rank r is a copy of rank r mod "
            f"{self.present}"
        )

    def check(self, links: Links, machines: Sequence[object], speeds: Sequence[float]) -> None:
        """Raise ValueError if a rank and its copy differ in machine, link or speed.

        Raise it too if `present` does not divide the number of ranks, or if it cuts a host in two.
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
        """Return the running members of a group."""
        return tuple(rank for rank in members if rank < self.present)

    def check_group(self, members: Sequence[int]) -> None:
        """Raise ValueError if a group has running ranks, but is not made of whole copies."""
        here = self.running(members)
        originals = [rank % self.present for rank in members]
        if here and originals != [*here] * (len(members) // len(here)):
            raise ValueError(
                f"the group {short(members)} does not repeat: with alike={self.present}, its ranks "
                f"are copies of ranks {short(originals)}. Make a group of ranks below "
                f"{self.present} only, or a group with equally many copies of each original"
            )

    def first_copy(self, members: Sequence[int]) -> tuple[int, ...]:
        """Return a group without running ranks, shifted down by whole copies to the first ranks."""
        start = min(members) // self.present * self.present
        return tuple(rank - start for rank in members)


def short(ranks: Sequence[int]) -> str:
    """Return a list of ranks as text: "[0, 8, 16, ..., 504]"."""
    if len(ranks) <= 8:
        return str([*ranks])
    return f"[{', '.join(map(str, ranks[:4]))}, ..., {ranks[-1]}]"
