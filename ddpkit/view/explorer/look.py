"""What canvas.js draws with, on white paper and on dark: fills, labels and inks."""

from ddpkit.view.drawing import style

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
        "paper": "white",
    },
}
DARK = {
    "text": style.GRID,
    "grey": style.DONE,
    "grid": "#3E4C59",
    "band": "#27313B",
    "exposed": style.EXPOSED,
    "paper": "#1B2229",
}
