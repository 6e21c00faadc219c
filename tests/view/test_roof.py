"""Operations under roofs: shares of the time, the ridge, and a readable picture."""

from dataclasses import dataclass

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ddpkit.view import show_roof
from ddpkit.view.roof.figure import LOOKS, draw_roof
from ddpkit.view.roof.model import roof_picture
from tests.view.readable import assert_readable, luminance


@dataclass(frozen=True)
class Rates:
    flops: float = 1e12
    bandwidth: float = 1e10
    launch: float = 1e-6


LONG, PASS, SHORT = (4 * 10**7, 10**4), (0, 10**5), (10**5, 10**3)  # 40 us, 10 us and 0.1 us


def test_time_is_shared_out_by_limit_and_idle_time_is_the_launchs() -> None:
    model = roof_picture([LONG, PASS, *[SHORT] * 60], Rates())
    assert model.seconds == pytest.approx(62.1e-6)
    assert model.shares["memory"] == pytest.approx(10 / 62.1)
    assert model.shares["arithmetic"] == pytest.approx((49 * 0.1) / 62.1, abs=0.01)
    assert sum(model.shares.values()) == pytest.approx(1)


def test_the_ridge_and_operations_without_flops_are_said() -> None:
    model = roof_picture([LONG, PASS], Rates())
    assert model.text.splitlines()[-2:] == [
        "The roofs meet at 100 FLOPs a byte.",
        "1 operations have no FLOPs and no dot.",
    ]
    assert [(dot.intensity, dot.limit) for dot in model.dots] == [(4000, "launches")]


def test_equal_operations_are_one_dot() -> None:
    model = roof_picture([LONG, *[SHORT] * 5], Rates())
    assert [dot.number for dot in model.dots] == [1, 5]
    assert model.dots[1].rate == pytest.approx(1e12)


@pytest.mark.parametrize("operations", [[LONG], [PASS], [LONG, PASS, *[SHORT] * 100]])
@pytest.mark.parametrize("launch", [0.0, 1e-6, 1e-3])
def test_every_picture_can_be_read(operations: list[tuple[int, int]], launch: float) -> None:
    assert_readable(draw_roof(roof_picture(operations, Rates(launch=launch))))


def test_each_limit_has_contrast_with_the_page_and_a_mark_of_its_own() -> None:
    assert len({marker for _, marker in LOOKS.values()}) == len(LOOKS)
    for color, _ in LOOKS.values():
        assert 1.05 / (luminance(to_rgb(color)) + 0.05) >= 3, color  # WCAG 1.4.11


def test_it_is_shown_with_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(show_roof([LONG, PASS], Rates()), Figure)
    assert "under the slope" in capsys.readouterr().out


def test_operations_that_cannot_be_drawn_are_said() -> None:
    with pytest.raises(ValueError, match="at least one operation"):
        show_roof([], Rates())
    with pytest.raises(ValueError, match="operation 1 has 5 FLOPs and 0 bytes"):
        show_roof([LONG, (5, 0)], Rates())
    with pytest.raises(ValueError, match="bandwidth above 0"):
        show_roof([LONG], Rates(bandwidth=0))
