"""`blocks_of`: a chain of products of matrices that ranks hold in blocks. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ddpkit.text import prose, size

HELD = ("whole", "columns", "rows", "sum")
# the placements of two factors on ranks -> the placement of their product, if each rank multiplies
# its own blocks
RULES = {
    ("whole", "whole"): "whole",
    ("whole", "columns"): "columns",
    ("rows", "whole"): "rows",
    ("columns", "rows"): "sum",
    ("whole", "rows"): "sum",  # each rank uses some columns of its whole matrix
}
SAID = {
    "whole": "all of it is on every rank",
    "columns": "each rank has some of its columns",
    "rows": "each rank has some of its rows",
    "sum": "each rank has a part of every number, and they add up to it",
}
NUMBER = 4  # bytes


@dataclass(frozen=True, slots=True)
class Matrix:
    """A float32 matrix, and its placement on the ranks.

    ``held`` is "whole" (all of the matrix on every rank), "columns" or "rows" (a block of columns
    or rows on each rank, cut as by `tensor_split`), or "sum" (each rank has a part of every number;
    DTensor calls this Partial). With "rows", each rank also holds copies of ``halo`` rows of each
    neighbour.
    """

    name: str
    rows: int
    columns: int
    held: str = "whole"
    halo: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for a matrix that cannot be drawn."""
        if self.held not in HELD:
            raise ValueError(f"{self.name} has held={self.held!r}: choose one of {', '.join(HELD)}")
        if min(self.rows, self.columns) < 1 or self.halo < 0:
            raise ValueError(
                f"{self.name} needs 1 row or more, 1 column or more, and a halo of 0 or more"
            )
        if self.halo and self.held != "rows":
            raise ValueError(
                f"{self.name} cannot have a halo: only a matrix with held='rows' has a halo"
            )

    @property
    def nbytes(self) -> int:
        """The bytes of the whole matrix."""
        return self.rows * self.columns * NUMBER

    def cuts(self, ranks: int) -> list[tuple[int, int]]:
        """Return (first, end) of the rows or columns in each rank's block; ``end`` is excluded."""
        length = {"rows": self.rows, "columns": self.columns}.get(self.held, 0)
        small, larger = divmod(length, ranks)
        sizes = [small + (rank < larger) for rank in range(ranks)]
        return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(ranks)]


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A line of the picture: a matrix alone, or two matrices and their product."""

    matrices: tuple[Matrix, ...]
    said: tuple[str, ...]  # sentences


@dataclass(frozen=True, slots=True)
class BlocksPicture:
    """The blocks of all ranks: one line of the picture for each product."""

    lines: tuple[MatrixProduct, ...]
    ranks: int
    finding: str  # a sentence on the bytes that ranks send

    @property
    def title(self) -> str:
        """Return the subject of the picture."""
        return f"The blocks on each of {self.ranks} ranks"

    @property
    def text(self) -> str:
        """The picture in words and numbers."""
        return "\n".join(map(prose, [self.finding, *(s for line in self.lines for s in line.said)]))


def blocks_of(matrices: Sequence[Matrix], ranks: int, *, whole: bool = True) -> BlocksPicture:
    """Return the picture of a chain of matrices, multiplied from the left.

    If ranks cannot multiply their blocks, a collective first gives every rank all of one factor.
    The last product is made whole too, unless ``whole`` is False. Raises ValueError for shapes that
    do not fit, and without a matrix or a rank.
    """
    if not matrices or ranks < 1:
        raise ValueError("show_blocks needs a matrix, and at least one rank")
    first, *rest = matrices
    if not rest:
        return BlocksPicture((MatrixProduct((first,), ()),), ranks, _alone(first, ranks))
    left, sent, lines = first, 0, []
    for number, right in enumerate(rest, 1):
        if left.columns != right.rows:
            raise ValueError(
                f"{left.name} cannot be multiplied by {right.name}: {left.name} has {left.columns} "
                f"columns, but {right.name} has {right.rows} rows"
            )
        before, right = _summed(right, ranks)
        if (left.held, right.held) not in RULES:
            before.append(_made_whole(left, ranks))
            left = replace(left, held="whole")
        name = f"{left.name} {right.name}"
        made = Matrix(name, left.rows, right.columns, RULES[left.held, right.held])
        last = whole and number == len(rest) and made.held != "whole"
        after = [_made_whole(made, ranks)] if last else []
        sent += sum(nbytes for _, nbytes in [*before, *after])
        said = *(s for s, _ in before), f"Of {name} {SAID[made.held]}.", *(s for s, _ in after)
        lines.append(MatrixProduct((left, right, made), said))
        left = replace(made, name=f"({name})")
    found = f"Each rank sends {size(sent)} in all, by rings." if sent else "Nothing travels."
    return BlocksPicture(tuple(lines), ranks, found)


def _summed(matrix: Matrix, ranks: int) -> tuple[list[tuple[str, int]], Matrix]:
    """Return the collectives before a product, and the right factor after the collectives.

    Only a factor that is held as a "sum" needs a collective. A collective is a pair: a sentence,
    and the bytes that each rank sends.
    """
    if matrix.held != "sum":
        return [], matrix
    return [_made_whole(matrix, ranks)], replace(matrix, held="whole")


def _made_whole(matrix: Matrix, ranks: int) -> tuple[str, int]:
    """Return a sentence on the all-reduce or all-gather of a matrix, and the bytes a rank sends."""
    name, times = ("all_reduce", 2) if matrix.held == "sum" else ("all_gather", 1)
    nbytes = times * (ranks - 1) * matrix.nbytes // ranks
    shape = f"{matrix.rows:,} × {matrix.columns:,}"
    return f"An {name} makes {matrix.name} whole: {shape}, {size(nbytes)} from each rank.", nbytes


def _alone(matrix: Matrix, ranks: int) -> str:
    if not matrix.halo:
        return f"Of {matrix.name} {SAID[matrix.held]}."
    sizes = sorted({end - first for first, end in matrix.cuts(ranks)})
    lent = size(matrix.halo * matrix.columns * NUMBER)
    return (
        f"Of {matrix.name} each rank has {' or '.join(map(str, sizes))} rows, and "
        f"{matrix.halo} of each neighbour's: {lent} a message."
    )
