"""`mesh_picture`: the places of the ranks of a mesh, and the groups along each dimension. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ddpkit.simulate.mesh.plans import mesh_groups
from ddpkit.text import count

MOST_RANKS, MOST_DIMENSIONS = 64, 3


@dataclass(frozen=True, slots=True)
class MeshPicture:
    """The dimensions of a mesh, and the groups of ranks along each dimension.

    Ranks are numbered row by row, so consecutive ranks lie along the last dimension.
    """

    shape: Mapping[str, int]
    groups: Mapping[str, list[list[int]]]
    rank: int | None  # the rank with groups that stand out
    per_host: int | None  # ranks on a host

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return prod(self.shape.values())

    @property
    def title(self) -> str:
        """The mesh in words."""
        sides = " × ".join(map(str, self.shape.values()))
        hosts = f" on {count(self.hosts, 'host')}" if self.per_host else ""
        return f"A mesh of {sides}: {count(self.ranks, 'rank')}{hosts}"

    @property
    def hosts(self) -> int:
        """Return the number of hosts that the ranks need; 0 without ``per_host``."""
        return -(-self.ranks // self.per_host) if self.per_host else 0

    def host(self, rank: int) -> int | None:
        """Return the host of a rank; None without ``per_host``."""
        return rank // self.per_host if self.per_host else None

    def own(self, name: str) -> list[int]:
        """Return the group along dimension ``name`` that contains the chosen rank."""
        return next(group for group in self.groups[name] if self.rank in group)

    def at(self, rank: int) -> tuple[int, int, int]:
        """Return a rank's three coordinates; missing dimensions come first, with coordinate 0."""
        found = []
        for size in reversed([*(1,) * (MOST_DIMENSIONS - len(self.shape)), *self.shape.values()]):
            rank, place = divmod(rank, size)
            found.append(place)
        return found[2], found[1], found[0]

    def about(self, name: str) -> str:
        """Return a line about a dimension: its groups, and the peers of the chosen rank."""
        size = self.shape[name]
        said = f"{name}: {count(len(self.groups[name]), 'group')} of {size}"
        if size > 1:
            first = self.groups[name][0]
            said += f", {count(first[1] - first[0], 'rank')} apart"
        if self.rank is not None:
            others = ", ".join(str(rank) for rank in self.own(name) if rank != self.rank)
            said += f"; rank {self.rank} with {others or 'nobody'}"
        return said

    @property
    def text(self) -> str:
        """The picture in words and numbers."""
        return "\n".join([f"{self.title}.", *map(self.about, self.shape)])


def mesh_picture(
    shape: Mapping[str, int], rank: int | None = None, per_host: int | None = None
) -> MeshPicture:
    """Return the picture of a mesh.

    Raises ValueError for more than three dimensions or 64 ranks, for a ``rank`` outside the mesh,
    and for ``per_host`` below 1.
    """
    groups = mesh_groups(shape)
    ranks = prod(shape.values())
    if not 0 < len(shape) <= MOST_DIMENSIONS or ranks > MOST_RANKS:
        raise ValueError(
            f"a mesh of {len(shape)} dimensions and {ranks} ranks cannot be drawn: "
            f"a picture has room for at most {MOST_DIMENSIONS} dimensions and {MOST_RANKS} ranks"
        )
    if rank is not None and not 0 <= rank < ranks:
        raise ValueError(f"there is no rank {rank} in a mesh of {ranks}")
    if per_host is not None and per_host < 1:
        raise ValueError(f"per_host={per_host}: a host has one rank or more")
    return MeshPicture(shape, groups, rank, per_host)
