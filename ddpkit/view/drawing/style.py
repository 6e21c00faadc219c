"""The look of all pictures.

The colours are Okabe and Ito's, which the colour-blind tell apart. No two neighbours
differ by hue alone: some are light, some dark, and two are hatched.
"""

INK = "#1F2933"  # titles, labels on light bars
GREY = "#7B8794"  # axes, lanes, secondary text
BAND = "#F4F6FA"  # behind a rank's row
ARROW = "#52606D"  # the arrow of a message
GRID = "#E1E5EB"
IDLE = "#D9DEE4"

FORWARD = "#8FC6EA"
BACKWARD = "#0072B2"
OPTIMIZER = "#009E73"
SPAN = "#CC79A7"
MOVING = "#E69F00"
WAITING = "#F7E1AE"
WAITING_INK = "#6B4E00"
DONE = "#9AA5B1"
COPY = "#882255"  # Tol's wine, the darkest colour of a bar
EXPOSED = "#D55E00"
EXPOSED_THIN = "#EBA678"  # of its hatching, seen from far away

FACE = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
    "span": SPAN,
    "moving": MOVING,
    "waiting": WAITING,
    "done": DONE,
    "copy": COPY,
}
LABEL = {
    "forward": INK,
    "backward": "white",
    "optimizer": "white",
    "span": INK,
    "moving": INK,
    "waiting": WAITING_INK,
    "done": INK,
    "copy": "white",
}
EDGE = {"waiting": MOVING}  # of others it is white
TINTS = (  # Okabe and Ito's, and one of Tol's: of rank or micro-batch 0 to 7, and round again
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#882255"),
)
THIN = 0.2  # of a lane's height: a bar of what is done, but not collected

OVERLAP_HATCH = "\\\\\\\\\\"
EXPOSED_HATCH = "/////"

FONT = "DejaVu Sans"  # comes with matplotlib: pictures look the same everywhere
WIDTH = 11.0  # inches
DPI = 144  # twice what a notebook shows: sharp on fine screens


def tint(number: int) -> str:
    """The colour of a rank or of a micro-batch."""
    return TINTS[number % len(TINTS)]


def lighter(color: str) -> str:
    """A colour made pale, as a forward has it."""
    parts = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 - 0.42 * (255 - part)):02X}" for part in parts)


def ink_on(color: str) -> str:
    """White on what is dark: so a label can be read."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 127.5 else INK


for _number, _tint in enumerate(TINTS):  # of spans F3, B3, W3: operations on micro-batches
    FACE |= {f"F{_number}": lighter(_tint), f"B{_number}": _tint, f"W{_number}": "#FFFFFF"}
    EDGE[f"W{_number}"] = _tint
LABEL |= {kind: ink_on(FACE[kind]) for kind in FACE if kind[1:].isdigit()}
