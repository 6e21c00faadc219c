"""`draw_mesh`: a block of ranks seen from a corner, with a line through each group."""

from collections.abc import Iterator
from math import hypot

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Page
from ddpkit.view.mesh.model import MeshPicture

LEFT, BESIDE = 0.9, 5.9  # inches: where the block begins, below the words or beside them
BELOW, TOP, BOTTOM = 1.75, 0.75, 0.45
ACROSS, DOWN = 1.7, 1.15  # inches to a neighbour; less in a large mesh
BACK = (1.7, -1.04)  # inches to the next plane
ROOM = (9.2, 4.6)  # room for all ranks
RADIUS = 0.27
# colours of the first, second and third dimension
COLOURS = (style.OPTIMIZER, style.EXPOSED, style.BACKWARD)
HOSTS = ("#FFFFFF", "#E1E5EB", "#F7E1AE", "#D3E9F7")  # colours of hosts, used in turn


def draw_mesh(model: MeshPicture) -> Figure:
    """Return a figure of 11 inches width; its height follows the mesh."""
    spots = {rank: _spot(model, rank) for rank in range(model.ranks)}
    wide, lowest = (max(side) for side in zip(*spots.values(), strict=True))
    highest = min(y for _, y in spots.values())
    beside = BESIDE + wide + RADIUS < style.WIDTH - 0.2
    left, top = (BESIDE, TOP) if beside else (LEFT, BELOW)
    page = Page(max(top + lowest - highest + BOTTOM, BELOW - 0.3))
    spots = {rank: (left + x, top - highest + y) for rank, (x, y) in spots.items()}
    page.write_fitting(0.4, 0.24, model.title, 14.5, style.WIDTH - 0.6, bold=True)
    for number, (name, colour) in enumerate(_coloured(model)):
        y = 0.55 + 0.24 * number
        page.bars([(0.42, y - 0.03, 0.72, y + 0.03)], facecolor=colour, linewidth=0)
        room = BESIDE - 1.2 if beside else style.WIDTH - 1.2
        page.write_fitting(0.82, y, model.about(name), 10, room)
        _lines(page, model, name, colour, spots)
    _ranks(page, model, spots)
    return page.figure


def _coloured(model: MeshPicture) -> Iterator[tuple[str, str]]:
    """Return each dimension with its colour: the last dimension always has the last colour."""
    return zip(model.shape, COLOURS[-len(model.shape) :], strict=True)


def _steps(model: MeshPicture) -> tuple[tuple[float, float], ...]:
    """Return the offsets in inches from a rank to the next plane, the next row, the next column."""
    planes, rows, columns = (*(1,) * (3 - len(model.shape)), *model.shape.values())
    back = BACK[0] / planes, BACK[1] / planes
    wide = ACROSS * (columns - 1) + back[0] * (planes - 1)
    tall = DOWN * (rows - 1) - back[1] * (planes - 1)
    across, down = min(1.0, ROOM[0] / max(wide, 0.1)), min(1.0, ROOM[1] / max(tall, 0.1))
    return (across * back[0], down * back[1]), (0.0, down * DOWN), (across * ACROSS, 0.0)


def _spot(model: MeshPicture, rank: int) -> tuple[float, float]:
    """Return the place of a rank, in inches from the place of rank 0."""
    at = list(zip(model.at(rank), _steps(model), strict=True))
    return sum(n * x for n, (x, _) in at), sum(n * y for n, (_, y) in at)


def _lines(
    page: Page,
    model: MeshPicture,
    name: str,
    colour: str,
    spots: dict[int, tuple[float, float]],
) -> None:
    """Draw a line through each group of a dimension; the chosen rank's group stands out."""
    for group in model.groups[name]:
        own = model.rank in group
        faint = model.rank is not None and not own
        path = [spots[rank] for rank in group]
        look = {"linewidths": 4.0 if own else 2.0, "alpha": 0.3 if faint else 1.0}
        page.add(LineCollection([path], colors=colour, zorder=3 if own else 2, **look))


def _ranks(page: Page, model: MeshPicture, spots: dict[int, tuple[float, float]]) -> None:
    lengths = [hypot(*step) for step in _steps(model)]
    radius = min(RADIUS, 0.45 * min(lengths))
    for rank, (x, y) in spots.items():
        host = model.host(rank)
        named = host is not None and radius == RADIUS
        chosen = rank == model.rank
        face = HOSTS[(host or 0) % len(HOSTS)]
        edge, line = (style.INK, 2.4) if chosen else (style.GREY, 1.0)
        page.add(Circle((x, y), radius, facecolor=face, edgecolor=edge, linewidth=line, zorder=5))
        up = 0.06 if named else 0.0
        page.write(x, y - up, str(rank), 11 * radius / RADIUS, bold=True, ha="center", zorder=6)
        if named:
            page.write(x, y + 0.11, f"host {host}", 7.2, ha="center", zorder=6)
