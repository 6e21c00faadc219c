"""`draw_blocks`: matrices to scale, each block in the colour of the rank that holds the block."""

from matplotlib.figure import Figure

from ddpkit.view.blocks.model import BlocksPicture, Matrix, MatrixProduct
from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Box, Page

LEFT, TOP, WIDEST = 0.4, 0.9, 2.6  # inches: margins, and the longest side of a matrix
LEAST = 0.14  # inches: the least side of a matrix, so that a label fits beside the matrix
BETWEEN, UNDER, SAID = 0.5, 0.62, 0.2  # inches: gaps between and under matrices; a line of words
SHEET = 0.05  # inches by which each part of a sum is shifted behind the part in front
APART = 0.1  # inches between the strips of a matrix with a halo


def draw_blocks(model: BlocksPicture) -> Figure:
    """Return a figure of 11 inches width; its height follows the matrices."""
    longest = max(max(m.rows, m.columns) for line in model.lines for m in line.matrices)
    inch = WIDEST / longest
    heights = [max(_size(m, model.ranks, inch)[1] for m in line.matrices) for line in model.lines]
    unders = [UNDER + SAID * len(line.said) for line in model.lines]
    page = Page(TOP + sum(heights) + sum(unders))
    room = style.WIDTH - 2 * LEFT
    page.write_fitting(LEFT, 0.24, model.title, 14.5, room, bold=True)
    page.write_fitting(LEFT, 0.53, model.finding, 10, room)
    top = TOP
    for line, height, under in zip(model.lines, heights, unders, strict=True):
        _line(page, line, model.ranks, inch, top, height)
        top += height + under
    return page.figure


def _line(
    page: Page, line: MatrixProduct, ranks: int, inch: float, top: float, height: float
) -> None:
    at = LEFT
    for place, matrix in enumerate(line.matrices):
        if place:
            sign = "·" if place == 1 else "="
            page.write(at + BETWEEN / 2, top + height / 2, sign, 16, style.GREY, ha="center")
            at += BETWEEN
        wide, high = _size(matrix, ranks, inch)
        words = f"{matrix.name}: {matrix.held}"
        room = max(wide, page.text_width(words, 9, bold=True))
        left, above = at + (room - wide) / 2, top + (height - high) / 2
        _matrix(page, matrix, ranks, (left, above, left + wide, above + high))
        middle = at + room / 2
        page.write(middle, top + height + 0.14, words, 9, bold=True, ha="center")
        shape = f"{matrix.rows:,} × {matrix.columns:,}"
        page.write(middle, top + height + 0.3, shape, 8.5, style.GREY, ha="center")
        at += room
    for n, said in enumerate(line.said):
        y = top + height + 0.53 + SAID * n
        page.write_fitting(LEFT, y, said, 9.5, style.WIDTH - 2 * LEFT)


def _size(matrix: Matrix, ranks: int, inch: float) -> tuple[float, float]:
    """Return the width and the height of a matrix in the picture, in inches."""
    wide, high = (max(LEAST, inch * side) for side in (matrix.columns, matrix.rows))
    if matrix.held == "sum":
        return wide + SHEET * (ranks - 1), high + SHEET * (ranks - 1)
    if matrix.halo:
        high += (ranks - 1) * (APART + 2 * matrix.halo * inch)
    return wide, high


def _matrix(page: Page, matrix: Matrix, ranks: int, box: Box) -> None:
    left, top, right, bottom = box
    if matrix.held == "whole":
        page.bars([box], facecolor=style.IDLE, edgecolor=style.GREY, linewidth=0.8)
        page.label(box, ["on every rank", "every rank", "all"], 8.5)
    elif matrix.held == "sum":
        behind = SHEET * (ranks - 1)
        for rank in reversed(range(ranks)):  # draw rank 0 last, in front
            x, y = left + SHEET * rank, top + behind - SHEET * rank
            sheet = x, y, x + right - left - behind, y + bottom - top - behind
            page.bars([sheet], **style.filled(style.tint(rank), "white"))
        front = left, top + behind, right - behind, bottom
        page.label(front, ["a sum of all ranks'", "a sum"], 8.5, color=style.ink_on(style.tint(0)))
    elif matrix.halo:
        _strips(page, matrix, ranks, box)
    else:
        across = matrix.held == "columns"
        for rank, (first, end) in enumerate(matrix.cuts(ranks)):
            low, high = (left, right) if across else (top, bottom)
            inch = (high - low) / (matrix.columns if across else matrix.rows)
            a, b = low + first * inch, low + end * inch
            part = (a, top, b, bottom) if across else (left, a, right, b)
            _block(page, rank, part)


def _block(page: Page, rank: int, box: Box, *, named: bool = True) -> None:
    if box[0] == box[2] or box[1] == box[3]:
        return  # an empty block: there are more ranks than rows or columns
    face = style.tint(rank)
    page.bars([box], **style.filled(face, "white"))
    if named and box[3] - box[1] >= 0.12:
        page.label(box, [f"rank {rank}", str(rank)], 8.5, color=style.ink_on(face))


def _strips(page: Page, matrix: Matrix, ranks: int, box: Box) -> None:
    """Draw each rank's rows as a separate strip; halo rows have the colour of the neighbour."""
    left, top, right, bottom = box
    inch = (bottom - top - APART * (ranks - 1)) / (matrix.rows + 2 * matrix.halo * (ranks - 1))
    lent = matrix.halo * inch
    for rank, (first, end) in enumerate(matrix.cuts(ranks)):
        if rank:
            _block(page, rank - 1, (left, top, right, top + lent), named=False)
            top += lent
        own = top + (end - first) * inch
        _block(page, rank, (left, top, right, own))
        if rank < ranks - 1:
            _block(page, rank + 1, (left, own, right, own + lent), named=False)
            top = own + lent + APART
