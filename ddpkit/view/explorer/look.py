"""The explorer's code, its words, and its colours in the light theme and in the dark theme."""

from pathlib import Path

from ddpkit.view.drawing import style

FILES = "canvas.js", "controls.js"
WORDS = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "span": "a span of your own",
    "moving": "communication",
    "waiting": "waits for a peer",
    "exposed": "exposed communication",
    "done": "done, not collected",
}

LOOK = {
    "face": {**style.FACE},
    "label": {**style.LABEL},
    "thinness": style.THIN,
    "ink": {
        "text": style.INK,
        "grey": style.GREY,
        "grid": style.GRID,
        "band": style.BAND,
        "exposed": style.EXPOSED,
        "paper": "#FFFFFF",
        "edge": {**style.EDGE},
    },
}
DARK = {
    "text": style.GRID,
    "grey": "#9AA5B1",
    "grid": style.DARK_IDLE,
    "band": style.DARK_BAND,
    "exposed": "#E37A2A",
    "paper": style.DARK_PAPER,
    "edge": {
        kind: style.outline(face, style.DARK_BAND, "#FFFFFF")
        for kind, face in style.FACE.items()
        if style.contrast(face, style.DARK_BAND) < style.OUTLINED
    },
}


def code() -> str:
    """Return the JavaScript of the explorer, as one module."""
    return "".join(Path(__file__).with_name(name).read_text("utf-8") for name in FILES)
