"""The groups of a mesh, and wrong groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.simulate.mesh.plans import mesh_groups

Groups = Mapping[str, list[list[int]]]


def in_order(observed: Observed) -> Observed:
    """Sort the groups of each dimension by their first ranks, if the groups are lists."""
    try:
        groups = {
            name: sorted([int(rank) for rank in group] for group in found)
            for name, found in observed["groups"].items()
        }
    except (TypeError, ValueError, AttributeError):
        return observed
    return {"groups": groups}


def _first_as_neighbours(shape: Mapping[str, int]) -> Groups:
    """Return the wrong groups in which neighbouring ranks lie along the first dimension."""
    return {n: sorted(g) for n, g in mesh_groups(dict(reversed(list(shape.items())))).items()}


def _outside(shape: Mapping[str, int]) -> Groups:
    """Return the wrong groups that have all ranks of equal index along a dimension."""
    found = {}
    for name, groups in mesh_groups(shape).items():
        found[name] = sorted(sorted(ranks) for ranks in zip(*groups, strict=True))
    return found


def _flat(s: Seen) -> bool:
    return any(isinstance(each, int) for found in s.groups.values() for each in found)


def _counts(s: Seen) -> list[Counter[int]]:
    return [Counter(rank for group in found for rank in group) for found in s.groups.values()]


def _ranks(s: Seen) -> int:
    return prod(s.shape.values())


def _blocks(shape: Mapping[str, int]) -> object:
    """Return the wrong groups that have neighbouring ranks in every dimension."""
    ranks = range(prod(shape.values()))
    return {
        name: [list(ranks[at : at + size]) for at in ranks[::size]] for name, size in shape.items()
    }


# fmt: off
GROUPS = (
    Hint("own group only", _flat,
         "Each dimension has several groups: return a list of lists. Every rank has to make all "
         "groups, or new_group waits forever."),
    Hint("names", lambda s: set(s.groups) != set(s.shape),
         lambda s: f"The dimensions are called {', '.join(s.shape)}. Each dimension needs an "
         "entry."),
    Hint("no such rank", lambda s: any(max(c, default=0) >= _ranks(s) for c in _counts(s)),
         lambda s: f"There are {_ranks(s)} ranks, numbered from 0: the product of all sizes."),
    Hint("left out", lambda s: any(set(c) != set(range(_ranks(s))) for c in _counts(s)),
         "Along each dimension, every rank is in a group, even if the group has only one rank."),
    Hint("overlap", lambda s: any(max(c.values()) > 1 for c in _counts(s)),
         "A rank is in one group of each dimension, not in two."),
    Hint("first as neighbours", lambda s: s.groups == _first_as_neighbours(s.shape),
         "The last dimension varies fastest. Its groups are neighbours, for example 0 and 1."),
    Hint("outside", lambda s: s.groups == _outside(s.shape),
         "These ranks have the same index along the dimension. A group along the dimension has one "
         "rank for each index, and equal indices along all further dimensions."),
    Hint("neighbours everywhere", lambda s: s.groups == _blocks(s.shape),
         "Only ranks along the last dimension are neighbours. Along an earlier dimension, the "
         "distance between ranks is the product of the sizes of all later dimensions."),
    Hint("order", lambda s: {n: sorted(map(sorted, g)) for n, g in s.groups.items()}
         == s.expect["groups"], "Return the members of a group in rising order."),
    Hint("other", say="Write the ranks down row by row, and go along one dimension at a time, "
         "without a change of any further index."),
)
# fmt: on
