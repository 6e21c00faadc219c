"""`draw_attention`: a square of tiles in the colours of the ranks, and a bar for each rank."""

from matplotlib.figure import Figure

from ddpkit.view.attention.model import AttentionPicture, Tile
from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Box, Page

LEFT, TOP, SIDE, BOTTOM = 0.75, 1.2, 4.0, 0.2  # inches
BARS, ROOM, ROW = 6.0, 3.5, 0.42  # inches: left end of the bars, longest bar, highest row
HATCH = "////"


def draw_attention(model: AttentionPicture) -> Figure:
    """Return a figure 11 inches wide and about half as high."""
    page = Page(TOP + SIDE + BOTTOM)
    room = style.WIDTH - 0.8
    page.write_fitting(0.4, 0.24, model.title, 14.5, room, bold=True)
    page.write_fitting(0.4, 0.53, model.finding, 10, room)
    page.write(LEFT, TOP - 0.3, "keys, in the order of the sequence →", 9, style.ARROW)
    page.write(LEFT - 0.2, TOP, "queries →", 9, style.ARROW, rotation=270, ha="center", va="top")
    _square(page, model)
    _bars(page, model)
    return page.figure


def _square(page: Page, model: AttentionPicture) -> None:
    whole = LEFT, TOP, LEFT + SIDE, TOP + SIDE
    page.bars([whole], facecolor="white", edgecolor=style.GREY, linewidth=0.8)
    inch = SIDE / model.length
    for rank in range(model.ranks):
        face = style.tint(rank)
        own = [tile for tile in model.tiles if tile.rank == rank]
        full = [_box(tile, inch) for tile in own if not tile.masked]
        page.bars(full, **style.filled(face, "white"))
        masked = [_box(tile, inch) for tile in own if tile.masked]
        look = {"facecolor": style.lighter(face), "edgecolor": style.outline(face), "hatch": HATCH}
        page.bars(masked, linewidth=0.6, **look)
    for tile in model.tiles:
        box = _box(tile, inch)
        if min(box[2] - box[0], box[3] - box[1]) >= 0.2:
            ink = style.INK if tile.masked else style.ink_on(style.tint(tile.rank))
            page.label(box, [str(tile.rank)], 9, color=ink, boxed=tile.masked)


def _box(tile: Tile, inch: float) -> Box:
    across, down = tile.keys, tile.queries
    return (
        LEFT + across.start * inch,
        TOP + down.start * inch,
        LEFT + across.end * inch,
        TOP + down.end * inch,
    )


def _bars(page: Page, model: AttentionPicture) -> None:
    row, most = min(ROW, (SIDE - 0.9) / model.ranks), max(model.pairs)
    page.write(BARS, TOP - 0.3, "pairs of a query and a key that it sees", 9, style.ARROW)
    for rank, pairs in enumerate(model.pairs):
        middle, end = TOP + row * (rank + 0.5), BARS + ROOM * pairs / most
        page.write(BARS - 0.1, middle, f"rank {rank}", 9, ha="right")
        box = BARS, middle - 0.36 * row, end, middle + 0.36 * row
        page.bars([box], **style.filled(style.tint(rank), "white"))
        page.write(end + 0.08, middle, f"{pairs:,}", 9)
    pale: style.Look = {"facecolor": "#FFFFFF", "edgecolor": style.ARROW, "linewidth": 0.8}
    entries: list[tuple[str, style.Look]] = [
        ("a tile without a mask", {"facecolor": style.ARROW}),
        ("a tile with a mask", {**pale, "hatch": HATCH}),
        ("no pair: left out", pale),
    ]
    shown = entries if model.causal else entries[:1]
    page.legend(shown, BARS, TOP + SIDE - 0.25, style.WIDTH - BARS - 0.3)
