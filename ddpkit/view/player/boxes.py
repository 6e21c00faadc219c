"""`Boxes`: the places of the ranks of a playback, in inches from the top left corner. Pure."""

from dataclasses import dataclass
from math import cos, hypot, pi, sin

from ddpkit.view.player.model import Playback

WIDTH = 8.3
Point = tuple[float, float]
Line = tuple[Point, Point]


@dataclass(frozen=True, slots=True)
class Node:
    """A rank's box."""

    x: float  # the middle of the box
    y: float
    width: float
    height: float

    def edge(self, toward: Point, beyond: float = 0.06) -> Point:
        """Return the point ``beyond`` inches outside the box, in the direction of ``toward``."""
        dx, dy = toward[0] - self.x, toward[1] - self.y
        far = hypot(dx, dy) or 1.0
        out = min(
            self.width / 2 / abs(dx) if dx else float("inf"),
            self.height / 2 / abs(dy) if dy else float("inf"),
        )
        out = min(out + beyond / far, 1.0)
        return self.x + dx * out, self.y + dy * out


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes before a step, where arrows begin, and after the step, where arrows end.

    In a ring, ``before`` and ``after`` are the same boxes.
    """

    before: tuple[Node, ...]
    after: tuple[Node, ...]
    height: float

    @property
    def is_ring(self) -> bool:
        return self.before is self.after

    def arrow(self, source: int, target: int, *, both_ways: bool) -> Line:
        """Return the arrow from a source to a target, shifted left if a second arrow comes back."""
        a, b = self.before[source], self.after[target]
        if not self.is_ring:
            tail, head = (a.x, a.y + a.height / 2 + 0.05), (b.x, b.y - b.height / 2 - 0.05)
            return tail, head
        (x, y), (to_x, to_y) = a.edge((b.x, b.y)), b.edge((a.x, a.y))
        if both_ways:
            far = hypot(to_x - x, to_y - y) or 1.0
            aside = 0.13 * (to_y - y) / far, -0.13 * (to_x - x) / far
            return (x + aside[0], y + aside[1]), (to_x + aside[0], to_y + aside[1])
        return (x, y), (to_x, to_y)


def boxes_of(playback: Playback) -> Boxes:
    """Return boxes in a ring if ranks send only to neighbours; otherwise boxes in two rows.

    The rows stand for the time before and after a step.
    """
    return _ring(playback) if playback.is_ring or playback.world_size == 1 else _rows(playback)


def _ring(playback: Playback) -> Boxes:
    """Return boxes in a ring, clockwise from rank 0 at the top; with two ranks, rank 0 is left."""
    n = playback.world_size
    wide, high = (1.7, 1.0) if n <= 4 else (1.4, 0.86) if n <= 8 else (0.8, 0.56)
    if not playback.chunks:
        wide, high = 0.7 * wide, 0.42
    across = {1: 0.0, 2: 1.9, 3: 2.3, 4: 2.5}.get(n, 3.1 if n <= 8 else 3.7)
    down = {1: 0.0, 2: 0.0, 3: 1.0, 4: 1.2}.get(n, 1.85 if n <= 8 else 2.6)
    down *= 1.0 if playback.chunks else 0.8  # boxes without chunks are low
    turn = -pi if n == 2 else -pi / 2
    angles = [turn + 2 * pi * rank / n for rank in range(n)]
    points = [(across * cos(angle), down * sin(angle)) for angle in angles]
    top = min(y for _, y in points) - high / 2
    nodes = tuple(Node(WIDTH / 2 + x, y - top, wide, high) for x, y in points)
    return Boxes(nodes, nodes, max(y for _, y in points) - top + high / 2)


def _rows(playback: Playback) -> Boxes:
    n = playback.world_size
    pitch = (WIDTH - 0.75) / n  # the names of the rows stand left of the boxes
    wide = min(1.6, pitch - (0.22 if n <= 8 else 0.08))
    high = 0.86 if playback.chunks > 1 else 0.66 if playback.chunks else 0.42
    gap = 1.25 if n <= 4 else 1.5
    left = 0.75 + pitch / 2
    before = tuple(Node(left + pitch * rank, high / 2, wide, high) for rank in range(n))
    after = tuple(Node(node.x, high * 1.5 + gap, wide, high) for node in before)
    return Boxes(before, after, 2 * high + gap)
