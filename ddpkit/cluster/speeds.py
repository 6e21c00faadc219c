"""The speeds of the ranks' emulated machines, relative to this computer: parsing and text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ddpkit.errors import ClusterError
from ddpkit.text import by_rank


def speeds_of(
    speed: float | Mapping[int, float], world_size: int, *, emulated: bool
) -> tuple[float, ...]:
    """Return the speed of each rank from `Cluster(speed=)`.

    Raises ClusterError if a speed is invalid.
    """
    each = [1.0] * world_size
    own = speed if isinstance(speed, Mapping) else dict.fromkeys(range(world_size), speed)
    for rank, factor in own.items():
        if rank not in range(world_size):
            raise ClusterError(
                f"speed={{{rank!r}: ...}}: a key is a rank from 0 to {world_size - 1}"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor > 0:
            raise ClusterError(
                f"speed={factor!r}: a speed is a number above 0. At speed 0.5 a rank is half "
                "as fast as this computer; at speed math.inf, its compute takes no time"
            )
        each[rank] = float(factor)
    if not emulated and set(each) != {1.0}:
        raise ClusterError(
            'speed= works in emulated time only: add a link, such as link="1 Gbit/s, 200 us" or '
            'link="unlimited", or add machine='
        )
    return tuple(each)


def speed_text(speeds: Sequence[float]) -> str:
    """Return the speeds as text, or "" if all speeds are 1."""
    if set(speeds) <= {1.0}:
        return ""
    return by_rank(["infinite" if math.isinf(speed) else f"{speed:g}" for speed in speeds])
