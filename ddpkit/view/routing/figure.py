"""`draw_routing`: a map of the rows from each rank to each expert; bars of each rank's total."""

from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure

from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Box, Page
from ddpkit.view.routing.model import RoutingPicture

LEFT, RIGHT, TOP = 1.05, 0.3, 1.25  # inches: ranks' names, right margin, words above
HIGH, LEAST = 0.34, 0.1  # inches: a row of cells, and a row in a picture of many ranks
ROOM = 5.0  # inches for all rows of cells
APART = 0.12  # inches between the experts of two ranks; less if there are many ranks
BELOW, BAR, BOTTOM = 0.36, 0.22, 0.62  # inches: gap above the bars, a bar, and below the bars
SHADES = LinearSegmentedColormap.from_list("rows", ["white", style.TINTS[4]])  # dark ink fits


def draw_routing(model: RoutingPicture) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of ranks."""
    high = max(LEAST, min(HIGH, ROOM / model.ranks))
    bottom = TOP + model.ranks * high
    page = Page(bottom + BELOW + BAR + BOTTOM)
    room = style.WIDTH - LEFT - RIGHT
    page.write_fitting(LEFT, 0.24, model.title, 14.5, room, bold=True)
    page.write_fitting(LEFT, 0.53, model.finding, 10, room)
    apart = min(APART, 0.2 * room / model.ranks)
    wide = (room - apart * (model.ranks - 1)) / model.ranks
    for to in range(model.ranks):
        left = LEFT + to * (wide + apart)
        _experts(page, model, to, (left, TOP, left + wide, bottom), high)
        _rows(page, model, to, (left, bottom + BELOW, left + wide, bottom + BELOW + BAR))
    every = -(-model.ranks * 16 // 100) if high < 0.16 else 1
    for rank in range(0, model.ranks, every):
        page.write(LEFT - 0.1, TOP + (rank + 0.5) * high, f"from rank {rank}", 9, ha="right")
    page.write(LEFT - 0.1, bottom + BELOW + BAR / 2, "rows", 9, bold=True, ha="right")
    said = f"vertical line: the mean, {model.mean:,.0f} rows; framed: rows that stay on their rank"
    page.write_fitting(LEFT, page.height - 0.16, said, 9, room)
    return page.figure


def _experts(page: Page, model: RoutingPicture, to: int, box: Box, high: float) -> None:
    """Draw the number of rows that each rank sends to the experts of rank ``to``."""
    left, top, right, _ = box
    most = max(map(max, model.counts)) or 1
    wide = (right - left) / model.per_rank
    fits = page.text_width(f"{most:,}", 8.5) + 0.03 <= wide
    numbered = page.text_width(str(model.experts), 8.5) + 0.03 <= wide
    page.label((left, TOP - 0.5, right, TOP - 0.26), [f"rank {to}", str(to)], 9.5, bold=True)
    for at in range(model.per_rank):
        expert = to * model.per_rank + at
        x = left + at * wide
        words = [f"expert {expert}", str(expert)]
        if numbered:
            page.label((x, TOP - 0.26, x + wide, TOP - 0.02), words, 8.5)
        for rank, own in enumerate(model.counts):
            face = to_hex(SHADES(own[expert] / most))
            cell = (x, top + rank * high, x + wide, top + (rank + 1) * high)
            page.bars([cell], facecolor=face, edgecolor=style.GRID, linewidth=0.6)
            if fits and high >= 0.14:
                page.label(cell, [f"{own[expert]:,}"], 8.5)
    own_part = (left, top + to * high, right, top + (to + 1) * high)
    page.bars([own_part], facecolor="none", edgecolor=style.INK, linewidth=1.6)


def _rows(page: Page, model: RoutingPicture, to: int, box: Box) -> None:
    """Draw the rows that rank ``to`` receives as a bar, with a line at the mean of all ranks."""
    left, top, right, bottom = box
    inch = (right - left) / (max(model.rows) or 1)
    rows = model.rows[to]
    face = style.MOVING if rows > model.mean else style.FORWARD
    page.bars([box], facecolor=style.BAND, linewidth=0)
    page.bars([(left, top, left + rows * inch, bottom)], **style.filled(face))
    middle = left + model.mean * inch
    page.bars([(middle - 0.01, top - 0.05, middle + 0.01, bottom + 0.05)], facecolor=style.INK,
              linewidth=0)  # fmt: skip
    page.label((left, bottom + 0.05, right, bottom + 0.25), [f"{rows:,}"], 9, bold=True)
