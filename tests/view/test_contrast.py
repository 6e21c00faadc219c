"""The colours: texts are readable and fills visible, in each theme and for the colour-blind."""

from __future__ import annotations

from itertools import combinations

import pytest

from ddpkit.view.drawing import style
from ddpkit.view.explorer.look import DARK, LOOK

TEXT, FILL = 4.5, 3.0  # WCAG 2: contrast of text and of graphics, at level AA
APART = 12.0  # Delta E of two solid fills; below 5, two colours can be told apart only side by side
KINDS = ("forward", "backward", "optimizer", "span", "moving", "waiting", "done", "copy", "host")
Inks = dict[str, object]


def rgb(color: str) -> list[float]:
    color = "#FFFFFF" if color == "white" else color
    return [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]


DARK_GROUNDS = style.DARK_PAPER, style.DARK_BAND


def dim(texts: dict[str, tuple[str, str]], least: float = TEXT) -> dict[str, float]:
    """Return the pairs with less contrast, by name."""
    found = {name: round(style.contrast(*map(plain, pair)), 2) for name, pair in texts.items()}
    return {name: each for name, each in found.items() if each < least}


def plain(color: str) -> str:
    return "#FFFFFF" if color == "white" else color


def test_text_is_read_on_its_ground() -> None:
    texts = {f"label on {kind}": (ink, style.FACE[kind]) for kind, ink in style.LABEL.items()}
    texts |= {f"label on tint {t}": (style.ink_on(t), t) for t in style.TINTS}
    dark = {name: (ink, style.dark_fill(plain(face))) for name, (ink, face) in texts.items()}
    inks = style.INK, style.GREY, style.ARROW, style.EXPOSED
    for ground in ("#FFFFFF", style.BAND):
        texts |= {f"{ink} on {ground}": (ink, ground) for ink in inks}
    for ground in (*DARK_GROUNDS, style.DARK_IDLE):
        dark |= {f"{ink} on {ground}": (style.dark_ink(ink), ground) for ink in inks}
    texts["idle"] = style.INK, style.IDLE
    assert dim(texts) == {}
    on_white = {f"label on W{k}" for k in range(8)}  # a ground, which has inks of its own
    assert dim(dark).keys() - on_white == set()


@pytest.mark.parametrize("ground", ["#FFFFFF", style.BAND, *DARK_GROUNDS])
def test_a_fill_stands_out_or_has_an_outline(ground: str) -> None:
    fills = {kind: style.EDGE.get(kind, face) for kind, face in style.FACE.items()}
    fills |= {f"tint {tint}": style.outline(tint) for tint in style.TINTS}
    fills |= {f"curve {color}": color for color in (*style.CURVES, style.EXPOSED_THIN)}
    if ground in DARK_GROUNDS:
        fills = {name: style.dark_line(color) for name, color in fills.items()}
        fills |= {f"fill of {kind}": style.dark_fill(style.FACE[kind]) for kind in KINDS}
    assert dim({name: (color, ground) for name, color in fills.items()}, FILL) == {}


@pytest.mark.parametrize("ink", [LOOK["ink"], DARK], ids=["light", "dark"])
def test_the_explorer_has_the_same_contrast_in_each_theme(ink: Inks) -> None:
    grounds, edge = (str(ink["paper"]), str(ink["band"])), ink["edge"]
    assert isinstance(edge, dict)
    for ground in grounds:
        for name in ("text", "grey"):
            assert style.contrast(str(ink[name]), ground) >= TEXT, (name, ground)
        assert style.contrast(str(ink["exposed"]), ground) >= FILL, ground
        for kind in KINDS:
            stands_out = style.contrast(edge.get(kind, style.FACE[kind]), ground)
            assert stands_out >= FILL, (kind, ground)


def deuteranope(color: str) -> tuple[float, float, float]:
    """Return CIE L*a*b* of a colour as people without green cones see the colour.

    The matrix is that of Machado, Oliveira and Fernandes (2009) for severity 1.
    """
    matrix = (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    )
    plain = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in rgb(color)]
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, plain, strict=True)))) for row in matrix
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    a, b, c = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * b - 16, 500 * (a - b), 200 * (b - c)


def test_the_colour_blind_tell_the_kinds_apart() -> None:
    """Regression: own spans and "done" differed by only 3.9."""
    near = {}
    for one, other in combinations(KINDS, 2):
        pair = deuteranope(style.FACE[one]), deuteranope(style.FACE[other])
        apart = sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) ** 0.5
        if apart < APART:
            near[one, other] = round(apart, 1)
    assert near == {}
