"""The look of all pictures.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart; some are made
lighter or darker. No two neighbours differ by hue alone: some colours are light, some are dark, and
two are hatched.

tests/view/test_contrast.py checks two rules, in the light theme, in the dark theme of a notebook
and in the dark theme of the explorer. Text has a contrast of at least 4.5 to 1 with its background.
A fill, or the outline of the fill, has a contrast of at least 3 to 1.
"""

from typing import Any

Look = dict[str, Any]  # keyword arguments for matplotlib

INK = "#1F2933"  # titles, labels on light bars
GREY = "#5B6875"  # axes, lanes, secondary text
BAND = "#F4F6FA"  # behind a rank's row
ARROW = "#52606D"  # the arrow of a message
GRID = "#E1E5EB"
IDLE = "#D9DEE4"
DARK_PAPER = "#1B2229"
DARK_BAND = "#222B34"
DARK_IDLE = "#3E4C59"
# colours of a light theme -> colours of a dark theme: backgrounds, then texts
GROUNDS = {"#FFFFFF": DARK_PAPER, BAND: DARK_BAND, IDLE: DARK_IDLE, GRID: DARK_IDLE}
INKS = {INK: GRID, GREY: "#B4BDC7", ARROW: "#B4BDC7", IDLE: DARK_IDLE}

FORWARD = "#8FC6EA"
BACKWARD = "#0072B2"
OPTIMIZER = "#008561"
SPAN = "#DDA7C5"
MOVING = "#ECB740"
WAITING = "#F7E1AE"
WAITING_INK = "#6B4E00"
DONE = "#66727F"
HOST = "#2A2A48"  # launches and waits of a device's host
COPY = "#882255"  # Tol's wine, the darkest colour of a bar
EXPOSED = "#B84F00"
EXPOSED_THIN = "#CC7A45"  # the colour of the exposed hatching, seen from far away

FACE = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
    "span": SPAN,
    "moving": MOVING,
    "waiting": WAITING,
    "done": DONE,
    "copy": COPY,
    "host": HOST,
}
LABEL = {
    "forward": INK,
    "backward": "white",
    "optimizer": "white",
    "span": INK,
    "moving": INK,
    "waiting": WAITING_INK,
    "done": "white",
    "copy": "white",
    "host": "white",
}
TINTS = (  # colours of rank or micro-batch 0 to 7, then again from 0; Okabe and Ito, one by Tol
    *("#0072B2", "#ECB740", "#008561", "#DDA7C5", "#7BC4EE", "#C05500", "#C9BD3D", "#882255"),
)
OUTLINED = 3.1  # least contrast of a fill, or of its outline, with the background
TEXT = 4.6  # least contrast of a text with the background
THIN = 0.2  # share of a lane's height for the bar of an operation that is done, but not collected

OVERLAP_HATCH = "\\\\\\\\\\"
EXPOSED_HATCH = "/////"

FONT = "DejaVu Sans"  # comes with matplotlib: pictures look the same everywhere
WIDTH = 11.0  # inches
DPI = 144  # twice the resolution of a notebook's page: sharp on fine screens


def tint(number: int) -> str:
    """Return the colour of a rank or of a micro-batch."""
    return TINTS[number % len(TINTS)]


def lighter(color: str) -> str:
    """Return a pale form of a colour: the colour of a micro-batch's forward."""
    parts = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 - 0.38 * (255 - part)):02X}" for part in parts)


def light(color: str) -> float:
    """Return the relative luminance of a colour, from 0 to 1, as WCAG 2 defines it."""
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21, as WCAG 2 defines it."""
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def outline(fill: str, ground: str = BAND, toward: str = "#000000", least: float = OUTLINED) -> str:
    """Return ``fill`` mixed with ``toward``, just enough to stand out on ``ground``.

    A fill with a contrast of ``least`` to 1 or more is returned unchanged.
    """
    ends = [[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in (fill, toward)]
    shares = (share / 50 for share in range(51))
    mixed = ([round(a + share * (b - a)) for a, b in zip(*ends, strict=True)] for share in shares)
    named = ("#" + "".join(f"{part:02X}" for part in parts) for parts in mixed)
    return next((color for color in named if contrast(color, ground) >= least), toward)


def dark_fill(color: str) -> str:
    """Return the colour of a fill in a dark theme, visible on that theme's dark background.

    Most bars keep their colours.
    """
    return GROUNDS.get(color.upper()) or outline(color, DARK_BAND, "#FFFFFF", 3.02)


def is_ground(color: str) -> bool:
    """True for the background colours of pages and rows, which a dark theme makes dark."""
    return color.upper() in GROUNDS


def dark_line(color: str) -> str:
    """Return the colour of a line in a dark theme, light enough to stand out there."""
    known = GROUNDS.get(color.upper()) or INKS.get(color.upper())
    return known or outline(color, DARK_BAND, "#FFFFFF")


def dark_ink(color: str) -> str:
    """Return the colour of a text in a dark theme, on a background that the theme makes dark."""
    return INKS.get(color.upper()) or outline(color, DARK_IDLE, "#FFFFFF", TEXT)


def ink_on(color: str) -> str:
    """Return the ink for a label on this colour: white or `INK`, by contrast."""
    return max("white", INK, key=lambda ink: contrast("#FFFFFF" if ink == "white" else ink, color))


def filled(color: str, between: str = "none") -> Look:
    """Return matplotlib's arguments for a filled patch: a pale fill has an outline.

    ``between`` is the colour of the edge of a fill that is not pale.
    """
    pale = contrast(color, BAND) < OUTLINED
    edge = outline(color) if pale else between
    return {"facecolor": color, "edgecolor": edge, "linewidth": 0.0 if edge == "none" else 0.8}


EDGE = {kind: outline(face) for kind, face in FACE.items() if filled(face)["linewidth"]}
for _number, _tint in enumerate(TINTS):  # spans F3, B3, W3 are operations on micro-batch 3
    FACE |= {f"F{_number}": lighter(_tint), f"B{_number}": _tint, f"W{_number}": "#FFFFFF"}
    EDGE |= {f"{_part}{_number}": outline(_tint) for _part in "FW"}
    EDGE |= {f"B{_number}": outline(_tint)} if filled(_tint)["linewidth"] else {}
LABEL |= {kind: ink_on(FACE[kind]) for kind in FACE if kind[1:].isdigit()}
CURVES = BACKWARD, EDGE["moving"], OPTIMIZER, EDGE["span"], EXPOSED, INK  # lines on white
