"""A mesh of ranks: its groups, the words about them, and the picture."""

import pytest
from matplotlib.figure import Figure

from ddpkit.view import show_mesh
from ddpkit.view.mesh.figure import draw_mesh
from ddpkit.view.mesh.model import mesh_picture
from tests.view.readable import assert_readable

CUBE = {"replica": 2, "stage": 2, "slice": 2}


def test_the_groups_of_a_rank_are_named() -> None:
    text = mesh_picture(CUBE, rank=5, per_host=2).text
    assert text.splitlines() == [
        "A mesh of 2 × 2 × 2: 8 ranks on 4 hosts.",
        "replica: 4 groups of 2, 4 ranks apart; rank 5 with 1",
        "stage: 4 groups of 2, 2 ranks apart; rank 5 with 7",
        "slice: 4 groups of 2, 1 rank apart; rank 5 with 4",
    ]
    assert mesh_picture({"slice": 1}, rank=0).text.endswith(
        "slice: 1 group of 1; rank 0 with nobody"
    )


def test_ranks_stand_row_by_row() -> None:
    model = mesh_picture({"stage": 2, "slice": 3})
    assert [model.at(rank) for rank in (0, 2, 4)] == [(0, 0, 0), (0, 0, 2), (0, 1, 1)]
    assert mesh_picture(CUBE).at(6) == (1, 1, 0)


@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        (CUBE, 5),
        ({"replica": 2, "stage": 2, "slice": 4}, None),
        ({"replica": 4, "stage": 4, "slice": 4}, 17),
        ({"slice": 8}, 0),
        ({"stage": 16, "slice": 1}, 0),
    ],
)
def test_the_picture_is_readable(shape: dict[str, int], rank: int | None) -> None:
    assert_readable(draw_mesh(mesh_picture(shape, rank, 2 if len(shape) == 3 else None)))


def test_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(show_mesh(CUBE, rank=5), Figure)
    assert "rank 5 with 7" in capsys.readouterr().out


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match="4 dimensions and 16 ranks cannot be drawn"):
        show_mesh(dict.fromkeys("abcd", 2))
    with pytest.raises(ValueError, match="no rank 8 in a mesh of 8"):
        show_mesh(CUBE, rank=8)
    with pytest.raises(ValueError, match="one rank or more"):
        show_mesh(CUBE, per_host=0)
