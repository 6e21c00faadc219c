"""Rows from ranks to experts: the busiest rank in words, the table, and the picture."""

import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ddpkit.view import show_routing
from ddpkit.view.drawing import style
from ddpkit.view.routing.figure import SHADES, draw_routing
from ddpkit.view.routing.model import routing_picture
from tests.view.readable import assert_readable, texts

HOT = [[512, 74, 73, 73], [512, 73, 74, 1_173]]


def test_the_busiest_rank_and_its_rows_from_other_ranks_are_said() -> None:
    assert routing_picture(HOT).text.splitlines() == [
        "Rank 1 takes 1,393 of 2,564 rows, 1.1 times the mean; 146 come from other ranks.",
        "from \\ to     e0     e1 |    e2     e3",
        "rank 0       512     74 |    73     73",
        "rank 1       512     73 |    74  1,173",
        "rows              1,171 |        1,393",
        "mean 1,282 rows for each rank",
    ]


def test_even_rows_and_no_rows_have_sentences_of_their_own() -> None:
    assert "2 of 4 rows, like every other rank; 1 come" in routing_picture([[1, 1], [1, 1]]).finding
    assert routing_picture([[0, 0], [0, 0]]).finding == "No rank takes a row."
    assert "5 of 5 rows, all of them; 0 come" in routing_picture([[2, 3]]).finding


def test_many_experts_have_a_column_for_each_rank_and_many_ranks_a_line() -> None:
    by_rank = routing_picture([[1] * 32 for _ in range(4)]).text.splitlines()
    assert " ".join(by_rank[1].split()) == "from \\ to rank 0 | rank 1 | rank 2 | rank 3"
    assert " ".join(by_rank[-2].split()) == "rows 32 | 32 | 32 | 32"
    by_line = routing_picture([[2] * 64 for _ in range(32)]).text.splitlines()
    assert by_line[-2] == "rank 31: 128 rows, 4 own"


@pytest.mark.parametrize(("ranks", "per_rank"), [(1, 1), (1, 8), (2, 3), (4, 2), (8, 8), (64, 4)])
def test_every_picture_can_be_read(ranks: int, per_rank: int) -> None:
    drawn = torch.Generator().manual_seed(ranks)
    counts = torch.randint(20_000, (ranks, ranks * per_rank), generator=drawn)
    assert_readable(draw_routing(routing_picture([*counts])))


def test_each_number_has_contrast_with_its_cell() -> None:
    for step in range(101):
        face = to_rgb(SHADES(step / 100))
        ink = to_rgb(style.INK)
        bright, dark = sorted((_luminance(face), _luminance(ink)), reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, step


def _luminance(color: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
    return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def test_show_prints_and_returns_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    figure = show_routing([torch.tensor(own) for own in HOT], per_rank=2)
    assert isinstance(figure, Figure)
    assert capsys.readouterr().out.startswith("Rank 1 takes 1,393 of 2,564 rows")
    words = {word for word, _ in texts(figure)}
    assert {"from rank 1", "expert 3", "1,173", "1,393", "rank 0"} <= words


def test_counts_that_do_not_fit_are_said() -> None:
    with pytest.raises(ValueError, match="rank 1 has counts for 3 experts, and rank 0 for 4"):
        show_routing([[1, 2, 3, 4], [1, 2, 3]])
    with pytest.raises(ValueError, match="2 ranks with 3 experts each do not have 4 experts"):
        show_routing(HOT, per_rank=3)
    with pytest.raises(ValueError, match="2 ranks with 0 experts each do not have 1 experts"):
        show_routing([[1], [2]])
    with pytest.raises(ValueError, match="rank 0 has a count of -1"):
        show_routing([[-1, 2], [1, 1]])
    with pytest.raises(ValueError, match="at least one rank and one expert"):
        show_routing([])
    with pytest.raises(TypeError):
        show_routing([[0.5, 1.5]])
