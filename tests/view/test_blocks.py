"""The blocks of a matrix on ranks: the bytes that products send, the words, and the picture."""

import pytest
from matplotlib.figure import Figure

from ddpkit.view import Matrix, show_blocks
from ddpkit.view.blocks.figure import draw_blocks
from ddpkit.view.blocks.model import HELD, BlocksPicture, blocks_of
from tests.view.readable import assert_readable, texts

X, UP = Matrix("x", 512, 256), Matrix("W₁", 256, 1024, "columns")
COLUMNS, ROWS = Matrix("W₂", 1024, 256, "columns"), Matrix("W₂", 1024, 256, "rows")


def held(picture: BlocksPicture) -> list[str]:
    """Return the ways in which ranks hold the products."""
    return [line.matrices[-1].held for line in picture.lines]


def test_columns_then_columns_gathers_twice() -> None:
    picture = blocks_of([X, UP, COLUMNS], 4)
    assert held(picture) == ["columns", "columns"]
    assert picture.lines[1].matrices[0].held == "whole"  # the matrix was gathered
    assert picture.finding == "Each rank sends 1.97 MB in all, by rings."  # 3/4 × 4 × 512 × 1,280


def test_columns_then_rows_sum_once() -> None:
    picture = blocks_of([X, UP, ROWS], 4)
    assert held(picture) == ["columns", "sum"]
    assert picture.lines[1].matrices[0].held == "columns"  # the matrix stays in its columns
    assert picture.text.splitlines() == [
        "Each rank sends 786 kB in all, by rings.",
        "Of x W₁ each rank has some of its columns.",
        "Of (x W₁) W₂ each rank has a part of every number, and they add up to it.",
        "An all_reduce makes (x W₁) W₂ whole: 512 × 256, 786 kB from each rank.",
    ]


def test_a_part_of_the_tokens_is_gathered_before_columns() -> None:
    part = Matrix("x", 512, 256, "rows")
    assert held(blocks_of([part, UP], 4)) == ["columns"]
    assert (
        blocks_of([part, UP], 4, whole=False).finding == "Each rank sends 393 kB in all, by rings."
    )
    assert held(blocks_of([part, Matrix("W", 256, 8)], 4)) == ["rows"]


def test_one_rank_sends_nothing() -> None:
    assert blocks_of([X, UP, ROWS], 1).finding == "Nothing travels."


def test_blocks_are_those_of_tensor_split() -> None:
    torch = pytest.importorskip("torch")
    for held_as in ("rows", "columns"):
        cuts = Matrix("W", 10, 10, held_as).cuts(4)
        parts = torch.arange(10).tensor_split(4)
        assert cuts == [(int(part[0]), int(part[-1]) + 1) for part in parts]


def test_a_halo_says_what_neighbours_lend() -> None:
    picture = blocks_of([Matrix("image", 66, 64, "rows", halo=2)], 4)
    assert picture.text == (
        "Of image each rank has 16 or 17 rows, and 2 of each neighbour's: 512 B a message."
    )
    words = [word for word, _ in texts(draw_blocks(picture))]
    assert {"rank 0", "rank 3", "image: rows", "66 × 64"} <= set(words)


@pytest.mark.parametrize("ranks", [1, 4, 16])
def test_every_product_can_be_read(ranks: int) -> None:
    for first, second in zip(HELD, [*HELD[1:], HELD[0]], strict=True):
        matrices = [Matrix("x", 512, 256, first), Matrix("W", 256, 64, second), Matrix("V", 64, 8)]
        assert_readable(draw_blocks(blocks_of(matrices, ranks)))


def test_show_prints_and_returns_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(show_blocks(X, UP, ranks=2), Figure)
    assert capsys.readouterr().out.startswith("Each rank sends 1.05 MB in all")


def test_what_cannot_be_shown_is_said() -> None:
    with pytest.raises(ValueError, match="x has 256 columns, but W₂ has 1024 rows"):
        show_blocks(X, ROWS)
    with pytest.raises(ValueError, match="a matrix, and at least one rank"):
        show_blocks()
    with pytest.raises(ValueError, match="held='blocks': choose one of whole, columns"):
        Matrix("W", 2, 2, "blocks")
    with pytest.raises(ValueError, match="only a matrix with held='rows'"):
        Matrix("W", 2, 2, halo=1)
    with pytest.raises(ValueError, match="needs 1 row or more"):
        Matrix("W", 0, 2)
