"""The speeds of the ranks' emulated machines, compared with this one: read, and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ddpkit.errors import ClusterError
from ddpkit.text import by_rank


def speeds_of(
    speed: float | Mapping[int, float], world_size: int, *, emulated: bool
) -> tuple[float, ...]:
    """The speed of each rank, from what `Cluster(speed=)` was given. Raises ClusterError."""
    each = [1.0] * world_size
    own = speed if isinstance(speed, Mapping) else dict.fromkeys(range(world_size), speed)
    for rank, factor in own.items():
        if rank not in range(world_size):
            raise ClusterError(
                f"speed={{{rank!r}: ...}}: a key is a rank from 0 to {world_size - 1}"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor > 0:
            raise ClusterError(
                f"speed={factor!r}: a speed is a number above 0: 0.5 is half as fast as this "
                "machine, math.inf computes in no time"
            )
        each[rank] = float(factor)
    if not emulated and set(each) != {1.0}:
        raise ClusterError(
            'speed= is of emulated machines: give a link too, as in link="1 Gbit/s, 200 us", or '
            'link="unlimited", or a machine'
        )
    return tuple(each)


def speed_text(speeds: Sequence[float]) -> str:
    """The speeds in words; "" if all are this machine's."""
    if set(speeds) <= {1.0}:
        return ""
    return by_rank(["infinite" if math.isinf(speed) else f"{speed:g}" for speed in speeds])
