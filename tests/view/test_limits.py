"""Exposed shares by tokens: the settled share, the limits, and the words."""

import math

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ddpkit.view import show_limits
from ddpkit.view.limits.figure import LOOKS, draw_limits
from ddpkit.view.limits.model import limits_picture
from tests.view.readable import assert_readable, luminance

SLOW = ([4096, 8192, 12288, 16384], [0.6, 0.3, 0.07, 0.06])
FAST = ([4096, 8192, 12288, 16384], [0.02, 0.01, 0.01, 0.01])


def test_the_settled_number_and_the_formulas_are_said() -> None:
    model = limits_picture({"50 GB/s": SLOW, "450 GB/s": FAST}, {"50 GB/s": 15625})
    assert model.text.splitlines() == [
        "50 GB/s: 60% exposed at 4,096 tokens, 6% from 12,288 on; by the formula 15,625",
        "450 GB/s: 2% exposed at 4,096 tokens",
    ]
    assert model.finding == "Exposed up to about 12,288 tokens with 50 GB/s."


def test_a_share_that_stays_is_said() -> None:
    model = limits_picture({"fast": FAST}, {"fast": math.inf})
    assert model.finding == "The share does not change from 4,096 tokens on."
    assert model.text.endswith("by the formula no number")


@pytest.mark.parametrize("lines", [1, 2, 5])
@pytest.mark.parametrize("limit", [None, 5000, 10**6, math.inf])
def test_every_picture_can_be_read(lines: int, limit: float | None) -> None:
    found = {f"network {n}, with a name that is rather long": SLOW for n in range(lines)}
    limits = {} if limit is None else dict.fromkeys(found, limit)
    assert_readable(draw_limits(limits_picture(found, limits)))


def test_each_line_has_contrast_with_the_page_dashes_and_a_mark_of_its_own() -> None:
    assert len({str(look[1:]) for look in LOOKS}) == len(LOOKS)
    for color, _, _ in LOOKS:
        assert 1.05 / (luminance(to_rgb(color)) + 0.05) >= 3, color  # WCAG 1.4.11


def test_it_is_shown_with_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(show_limits({"slow": SLOW}), Figure)
    assert "slow: 60% exposed" in capsys.readouterr().out


def test_lines_that_cannot_be_drawn_are_said() -> None:
    with pytest.raises(ValueError, match="1 to 5 lines, not 0"):
        show_limits({})
    with pytest.raises(ValueError, match="limit for 'fast', but no line"):
        show_limits({"slow": SLOW}, {"fast": 3})
    with pytest.raises(ValueError, match="one share for each"):
        show_limits({"slow": ([1, 2], [0.5])})
    with pytest.raises(ValueError, match="must rise"):
        show_limits({"slow": ([2, 1], [0.5, 0.5])})
    with pytest.raises(ValueError, match="from 0 to 1"):
        show_limits({"slow": ([1], [1.5])})
