"""`draw_moment`: one moment of a playback as a static figure."""

from functools import cache
from math import hypot

from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from ddpkit.text import size
from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Box, Page
from ddpkit.view.player.arrows import between, draw_arrows
from ddpkit.view.player.boxes import WIDTH, Boxes, Line, Node, boxes_of
from ddpkit.view.player.model import Message, Moment, Playback

LEFT, TOP = 0.2, 1.22
PANEL = LEFT + WIDTH + 0.3
RIGHT = style.WIDTH - PANEL - 0.2
ADDS, KEEPS = style.BACKWARD, style.OPTIMIZER
PART, WHOLE = style.FORWARD, style.OPTIMIZER
UNKNOWN = "On an arrow: the bytes of a message; a message of at most 16 numbers shows the numbers."
HOLDS = "On an arrow: the numbers that the message holds, each once."


def draw_moment(playback: Playback, step: int) -> Figure:
    """Return a figure 11 inches wide, of the same height for all steps of a playback."""
    boxes = boxes_of(playback)
    height = max(boxes.height, 0.35 + 0.24 * playback.world_size)
    page = Page(TOP + height + 0.86)
    moment = playback.moments[step]
    _headings(page, playback)
    _Drawer(page, playback, boxes, TOP + (height - boxes.height) / 2).draw(step)
    _sent(page, playback, moment)
    _progress(page, playback, step, TOP + height + 0.3)
    return page.figure


class _Drawer:
    """Drawer of the boxes, the chunks in the boxes, and the messages between them."""

    def __init__(self, page: Page, playback: Playback, boxes: Boxes, top: float) -> None:
        self.page, self.playback, self.boxes, self.top = page, playback, boxes, top
        self.letters: dict[str, list[tuple[float, float]]] = {}  # letter -> its places

    def draw(self, step: int) -> None:
        moment = self.playback.moments[step]
        before = self.playback.moments[max(0, step - 1)]
        arriving: list[set[int]] = [set() for _ in moment.sent]
        for message in moment.messages:
            arriving[message.target].update(range(*(message.chunks or (0, 0))))
        if not self.boxes.is_ring:
            self._row("before", self.boxes.before, before, [set() for _ in arriving])
            self._row("after", self.boxes.after, moment, arriving)
            lines = zip(self.boxes.before, self.boxes.after, strict=True)
            paths = [
                [(LEFT + a.x, self.top + a.y + a.height / 2),
                 (LEFT + b.x, self.top + b.y - b.height / 2)]
                for a, b in lines
            ]  # fmt: skip
            self.page.add(LineCollection(paths, colors=style.GRID, linewidths=1.2, zorder=1))
        else:
            self._row("", self.boxes.after, moment, arriving)
            self._middle(step)
        self._write_letters()
        self._arrows(moment)

    def _row(
        self, name: str, nodes: tuple[Node, ...], moment: Moment, arriving: list[set[int]]
    ) -> None:
        if name:
            y = self.top + nodes[0].y
            self.page.write(LEFT, y, name, 9.5, style.GREY)
        for rank, node in enumerate(nodes):
            self._box(rank, node, moment.holds[rank] if moment.holds else (), arriving[rank])

    def _box(self, rank: int, node: Node, holds: tuple[int, ...], arriving: set[int]) -> None:
        """Draw a rank's box: the name, and a column for each chunk, filled by contributions."""
        left, top, *_ = box = self._frame(node)
        self.page.bars([box], facecolor=style.BAND, edgecolor=style.IDLE, zorder=2)
        room = node.width - 0.06
        name = f"rank {rank}" if self.page.text_width(f"rank {rank}", 9, bold=True) < room else rank
        y = top + 0.12 if holds else (box[1] + box[3]) / 2
        self.page.write(LEFT + node.x, y, str(name), 9, bold=True, ha="center", zorder=4)
        if holds:
            self._columns((left + 0.06, top + 0.24, box[2] - 0.06, box[3]), holds, arriving)

    def _frame(self, node: Node) -> Box:
        left, top = LEFT + node.x - node.width / 2, self.top + node.y - node.height / 2
        return left, top, left + node.width, top + node.height

    def _columns(self, inside: Box, holds: tuple[int, ...], arriving: set[int]) -> None:
        pitch = (inside[2] - inside[0]) / len(holds)
        gap = min(0.05, pitch / 6)
        lettered = pitch > 0.1 and len(holds) > 1
        bottom = inside[3] - (0.17 if lettered else 0.06)
        frames = [
            (inside[0] + pitch * c + gap / 2, inside[1], inside[0] + pitch * (c + 1) - gap / 2,
             bottom)
            for c in range(len(holds))
        ]  # fmt: skip
        page, full = self.page, self.playback.full
        page.bars(frames, facecolor="white", edgecolor=style.GREY, linewidth=0.6, zorder=2.2)
        for complete, face in ((False, PART), (True, WHOLE)):
            chosen = [c for c, held in enumerate(holds) if (held >= full) == complete]
            pieces = [piece for c in chosen for piece in _pieces(frames[c], holds[c], full)]
            page.bars(pieces, facecolor=face, edgecolor="white", linewidth=0.4, zorder=2.4)
        new = [frames[c] for c in sorted(arriving)]
        line = 1.6 if pitch > 0.1 else 1.0
        page.bars(new, facecolor="none", edgecolor=style.EXPOSED, linewidth=line, zorder=2.6)
        if lettered:
            for c, frame in enumerate(frames):
                letter = self.playback.carried(Message(0, 0, 0, (c, c + 1)))
                at = (frame[0] + frame[2]) / 2, inside[3] - 0.055
                self.letters.setdefault(letter, []).append(at)

    def _write_letters(self) -> None:
        """Write the letters under the columns as paths: 64 texts would take half of a redraw."""
        for letter, places in self.letters.items():
            look: style.Look = {"facecolor": style.INK, "linewidth": 0, "zorder": 4}
            written = PathCollection(
                [_outline(letter)],
                offsets=places,
                offset_transform=self.page.inches,
                **look,
            )
            written.set_transform(Affine2D().scale(style.DPI / 72))
            self.page.figure.add_artist(written)

    def _middle(self, step: int) -> None:
        """Write the number and the purpose of this step in the middle of a ring of 4 or more."""
        if not self.playback.world_size >= 4 or not step:
            return
        middle = sum(node.y for node in self.boxes.after) / len(self.boxes.after)
        x, y = LEFT + WIDTH / 2, self.top + middle
        said = f"{self.playback.unit} {step} of {self.playback.steps}"
        self.page.write(x, y - 0.12, said, 12, bold=True, ha="center")
        if self.playback.chunks:
            adds = self.playback.moments[step].messages[0].adds
            what = "each rank adds the chunk" if adds else "each rank keeps the chunk"
            self.page.write(
                x, y + 0.13, what, 9.5, _look(self.playback, adds)["color"], ha="center"
            )

    def _arrows(self, moment: Moment) -> None:
        pairs = {(message.source, message.target) for message in moment.messages}
        drawn: list[tuple[Message, Line]] = []
        for message in moment.messages:
            both = (message.target, message.source) in pairs
            (x, y), (to_x, to_y) = self.boxes.arrow(message.source, message.target, both_ways=both)
            line = (LEFT + x, self.top + y), (LEFT + to_x, self.top + to_y)
            drawn.append((message, line))
        for adds in (True, False):
            lines = [line for message, line in drawn if message.adds == adds]
            draw_arrows(self.page, lines, **_look(self.playback, adds))
        self._labels(drawn)

    def _labels(self, drawn: list[tuple[Message, Line]]) -> None:
        """Write each message's content at its arrow; with two rows, only if contents differ."""
        texts = {self.playback.carried(message) for message, _ in drawn}
        taken = [self._frame(node) for node in (*self.boxes.before, *self.boxes.after)]
        if not drawn or (len(texts) == 1 and not self.playback.is_ring) or texts == {""}:
            return
        for message, line in drawn:
            text = ("+" if message.adds else "") + self.playback.carried(message)
            wide = self.page.text_width(text, 9, bold=True)
            x, y = self._beside(line, wide)
            box = x - wide / 2, y - 0.08, x + wide / 2, y + 0.08
            if all(_apart(box, other) for other in taken):
                color = _look(self.playback, message.adds)["color"]
                backed = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
                more = {"bold": True, "ha": "center", "zorder": 5, "bbox": backed}
                self.page.write(x, y, text, 9, color, **more)
                taken.append(box)

    def _beside(self, line: Line, wide: float) -> tuple[float, float]:
        """Return the middle of an arrow's label: beside the arrow in a ring, else on the arrow."""
        x, y = between(line, 0.5)
        if not self.boxes.is_ring:
            return x, y
        (a, b), (c, d) = line
        far = hypot(c - a, d - b) or 1.0
        nx, ny = (d - b) / far, -(c - a) / far  # a step to the arrow's left
        off = 0.1 + abs(nx) * wide / 2 + abs(ny) * 0.08
        return x + nx * off, y + ny * off


def _look(playback: Playback, adds: bool) -> style.Look:
    if not playback.chunks:
        return {"color": style.ARROW, "linestyle": "solid"}
    return {"color": ADDS if adds else KEEPS, "linestyle": "solid" if adds else (0, (3, 1.4))}


@cache
def _outline(letter: str) -> Path:
    """Return the outline of a letter, with its middle at x = 0."""
    text = TextPath((0, 0), letter, size=7.2, prop=FontProperties(family=style.FONT))
    return text.transformed(Affine2D().translate(-text.get_extents().width / 2, 0))


def _pieces(frame: Box, held: int, full: int) -> list[Box]:
    """Return the pieces of a column from the bottom up: one for each of the ``held`` contributions.

    A column with all ``full`` contributions is a single piece.
    """
    left, top, right, bottom = frame
    high = (bottom - top) / full
    if held >= full:
        return [frame]
    return [(left, bottom - high * (n + 1), right, bottom - high * n) for n in range(held)]


def _apart(box: Box, other: Box) -> bool:
    return box[2] < other[0] or other[2] < box[0] or box[3] < other[1] or other[3] < box[1]


def _headings(page: Page, playback: Playback) -> None:
    room = style.WIDTH - 2 * LEFT
    page.write_fitting(LEFT, 0.24, playback.title, 14.5, WIDTH, bold=True)
    page.write_fitting(LEFT, 0.53, playback.notice, 10, room)
    page.write(PANEL, TOP - 0.1, "Sent so far", 11, bold=True)
    if not playback.chunks:
        if playback.unit == "round":
            known = any(m.holds for moment in playback.moments for m in moment.messages)
            page.write(LEFT, 0.84, HOLDS if known else UNKNOWN, 9, style.GREY)
        return
    kinds = {m.adds for moment in playback.moments for m in moment.messages}
    entries: list[tuple[str, style.Look]] = []
    if playback.full > 1:
        entries.append((f"sum of fewer than {playback.full} ranks", style.filled(PART)))
    done = f"sum of all {playback.full}" if playback.full > 1 else "holds it"
    entries.append((done, {"facecolor": WHOLE}))
    if kinds:
        ring = {"facecolor": "white", "edgecolor": style.EXPOSED, "linewidth": 1.4}
        entries.append((f"arrived in this {playback.unit}", ring))
    page.legend(entries, LEFT + 0.01, 0.84, room)
    x = LEFT + 0.01 + sum(page.text_width(text, 9) + 0.36 for text, _ in entries)
    for adds, text in ((True, "is added to the chunk there"), (False, "is put in place")):
        if adds in kinds:
            line = (x, 0.84), (x + 0.34, 0.84)
            draw_arrows(page, [line], **_look(playback, adds))
            page.write(x + 0.4, 0.84, text, 9)
            x += page.text_width(text, 9) + 0.62


def _sent(page: Page, playback: Playback, moment: Moment) -> None:
    """Draw a bar for each rank: the bytes sent so far, in a frame for the bytes of all steps."""
    last = playback.moments[-1].sent
    most = max(last) or 1
    names = max(page.text_width(f"rank {rank}", 9) for rank in range(len(last))) + 0.08
    room = RIGHT - names - 0.64
    boxes, frames = [], []
    for rank, sent in enumerate(moment.sent):
        y = TOP + 0.18 + 0.24 * rank
        page.write(PANEL, y, f"rank {rank}", 9)
        left = PANEL + names
        boxes.append((left, y - 0.07, left + room * sent / most, y + 0.07))
        frames.append((left, y - 0.07, left + room * last[rank] / most, y + 0.07))
        page.write(style.WIDTH - 0.2, y, size(sent), 9, ha="right")
    page.bars(frames, facecolor="white", edgecolor=style.IDLE, linewidth=0.8, zorder=2)
    page.bars(boxes, zorder=2.1, **style.filled(style.MOVING))


def _progress(page: Page, playback: Playback, step: int, y: float) -> None:
    """Draw a row of all steps, mark this step, and write the events of the step."""
    pitch = WIDTH / max(1, playback.steps)
    for k in range(1, playback.steps + 1):
        left = LEFT + pitch * (k - 1)
        gap = min(0.03, pitch / 5)
        adds = playback.moments[k].messages[0].adds
        color = _look(playback, adds)["color"] if k <= step else style.IDLE
        look: style.Look = {"facecolor": color}
        if k == step:
            look |= {"edgecolor": style.INK, "linewidth": 2.0, "zorder": 3}
        page.add(Rectangle((left, y - 0.08), pitch - gap, 0.16, **look))
        if pitch > 0.25:
            ink = "white" if k <= step else style.INK
            page.write(left + (pitch - gap) / 2, y, str(k), 8.5, ink, bold=k == step, ha="center",
                       zorder=4)  # fmt: skip
    page.write_fitting(LEFT, y + 0.32, playback.line(step), 10, style.WIDTH - 2 * LEFT)
