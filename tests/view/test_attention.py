"""The square of queries and keys: its tiles, its pairs, its words, and the picture."""

import pytest
import torch
from matplotlib.figure import Figure

from ddpkit.view import show_attention
from ddpkit.view.attention.figure import draw_attention
from ddpkit.view.attention.model import attention_picture
from tests.view.readable import assert_readable, texts


def in_order(length: int, n: int) -> list[torch.Tensor]:
    return list(torch.arange(length).tensor_split(n))


def in_zigzag(length: int, n: int) -> list[torch.Tensor]:
    chunks = torch.arange(length).tensor_split(2 * n)
    return [torch.cat([chunks[rank], chunks[-1 - rank]]) for rank in range(n)]


def striped(length: int, n: int) -> list[range]:
    return [range(rank, length, n) for rank in range(n)]


def test_the_last_tokens_see_most() -> None:
    picture = attention_picture(in_order(64, 4))
    assert picture.pairs == (136, 392, 648, 904)
    assert picture.finding == (
        "Rank 3 has 904 of 2,080 pairs of a query and a key that it sees, 6.6 times as many as "
        "rank 0."
    )


def test_zigzag_is_fair() -> None:
    picture = attention_picture(in_zigzag(64, 4))
    assert picture.pairs == (520,) * 4
    assert picture.finding.startswith("Each rank has 520 of 2,080 pairs")
    assert len(set(picture.computed)) == 1


def test_tiles_without_a_pair_are_left_out_and_those_on_the_diagonal_have_a_mask() -> None:
    tiles = attention_picture(in_order(64, 4)).tiles
    assert len(tiles) == 8 * 9 / 2
    on_diagonal = [tile for tile in tiles if tile.masked]
    assert all(tile.queries == tile.keys for tile in on_diagonal)
    assert len(on_diagonal) == 8


def test_stripes_leave_fewer_tiles_out() -> None:
    """All queries of a rank see a key of each early part: 75 % of all scores are computed.

    In zigzag, 56 % are computed.
    """
    picture = attention_picture(striped(64, 4))
    assert sum(picture.computed) / 64**2 == 0.75
    assert "56% of all 4,096 scores" in attention_picture(in_zigzag(64, 4)).text


def test_without_a_mask_all_see_all() -> None:
    picture = attention_picture(in_order(8, 2), causal=False)
    assert picture.pairs == picture.computed == (32, 32)
    assert not any(tile.masked for tile in picture.tiles)


@pytest.mark.parametrize(
    "places",
    [
        in_order(64, 4),
        in_zigzag(64, 4),
        in_zigzag(1000, 16),
        striped(64, 4),
        [range(5)],
        [range(1), range(1, 1000)],
        [[], range(3)],
    ],
)
@pytest.mark.parametrize("causal", [True, False])
def test_the_picture_is_readable(places: list[range], causal: bool) -> None:
    assert_readable(draw_attention(attention_picture(places, causal=causal)))


def test_ranks_are_told_apart_without_colours() -> None:
    """Each large tile has the number of its rank; a bar has the name of its rank."""
    words = [word for word, _ in texts(draw_attention(attention_picture(in_order(64, 4))))]
    assert words.count("3") == 7 + 8
    assert {"rank 0", "rank 3", "904"} <= set(words)


def test_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(show_attention(in_order(64, 4)), Figure)
    assert "rank 0: 136 pairs; rank 1: 392 pairs" in capsys.readouterr().out


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match="position 3 is on ranks 0 and 1"):
        show_attention([range(4), range(3, 8)])
    with pytest.raises(ValueError, match="position 2 is on no rank"):
        show_attention([[0, 1], [3, 4]])
    with pytest.raises(ValueError, match="a rank with a token"):
        show_attention([])
    with pytest.raises(ValueError, match="1 part or more"):
        show_attention([[0]], tiles=0)
    with pytest.raises(ValueError, match="200 stretches of positions on 2 ranks cannot be drawn"):
        show_attention(striped(200, 2))
