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
}
LABEL = {
    "forward": INK,
    "backward": "white",
    "optimizer": "white",
    "span": INK,
    "moving": INK,
    "waiting": WAITING_INK,
    "done": INK,
}
THIN = 0.2  # of a lane's height: a bar of what is done, but not collected

OVERLAP_HATCH = "\\\\\\\\\\"
EXPOSED_HATCH = "/////"

FONT = "DejaVu Sans"  # comes with matplotlib: pictures look the same everywhere
WIDTH = 11.0  # inches
DPI = 144  # twice what a notebook shows: sharp on fine screens
