"""Lab 12: an image in strips, each strip with its halo, and results of mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]  # one tensor for each rank


class Strips:
    """An image [batch, channel, row, column] cut into strips of rows, for halos of k rows."""

    def __init__(self, image: Tensor, n: int, k: int) -> None:
        self.image, self.n, self.k = image, n, k
        self.strips = [strip.clone() for strip in image.tensor_split(n, dim=2)]

    def with_halo(self, rows: Tensor | None = None) -> list[Tensor]:
        """Return each strip with k more rows above and k more rows below.

        Above and below the whole image, the rows are `rows`, by default zeros.
        """
        beyond = torch.zeros_like(self.image[:, :, : self.k]) if rows is None else rows
        padded = torch.cat([beyond, self.image, beyond], dim=2)
        return [padded[:, :, at : at + size + 2 * self.k].clone() for at, size in self._extents()]

    def gradients(self, of_halos: Tensors) -> list[Tensor]:
        """Return the gradient of each strip: its own gradient, and those of the rows that it lent.

        `of_halos` has the gradients of the strips with their halos.
        """
        height = self.image.shape[2] + 2 * self.k
        total = torch.zeros_like(self.image[:, :, :1]).repeat(1, 1, height, 1)
        for (at, size), gradient in zip(self._extents(), of_halos, strict=True):
            total[:, :, at : at + size + 2 * self.k] += gradient
        inside = total[:, :, self.k : -self.k]
        return [inside[:, :, at : at + size].clone() for at, size in self._extents()]

    def sent(self) -> list[int]:
        """Return the bytes that each rank sends in a forward: k rows to each neighbour.

        A backward sends as many bytes.
        """
        edge = self.image[:, :, : self.k].contiguous().nbytes
        return [edge * ((rank > 0) + (rank < self.n - 1)) for rank in range(self.n)]

    def models(self, of_halos: Tensors) -> Mapping[str, list[Tensor]]:
        """Return the outputs and gradients that common mistakes give, by name of the mistake."""
        k, last = self.k, self.n - 1
        tops, bottoms = [s[:, :, :k] for s in self.strips], [s[:, :, -k:] for s in self.strips]
        none = torch.zeros_like(tops[0])
        above = [bottoms[rank - 1] if rank else none for rank in range(self.n)]
        below = [tops[rank + 1] if rank < last else none for rank in range(self.n)]
        own = [one[:, :, k:-k] for one in of_halos]
        up = [of_halos[rank + 1][:, :, :k] if rank < last else none for rank in range(self.n)]
        down = [of_halos[rank - 1][:, :, -k:] if rank else none for rank in range(self.n)]
        return {
            "wrapped": _joined([bottoms[-1], *above[1:]], self.strips, [*below[:-1], tops[0]]),
            "repeated": _joined(tops, self.strips, bottoms),
            "upside_down": _joined(below, self.strips, above),
            "dropped": own,
            "crossed": [_added(*each) for each in zip(own, up, down, strict=True)],
            "instead": [
                self._instead(*each) for each in zip(range(self.n), own, down, up, strict=True)
            ],
            "instead_at_rims": [
                self._instead(None, *each) for each in zip(own, down, up, strict=True)
            ],
            "own_rims": _joined([tops[0], *above[1:]], self.strips, [*below[:-1], bottoms[-1]]),
        }

    def _extents(self) -> list[tuple[int, int]]:
        """Return the first row and the number of rows of each strip."""
        sizes = [strip.shape[2] for strip in self.strips]
        return [(sum(sizes[:rank]), size) for rank, size in enumerate(sizes)]

    def _instead(self, rank: int | None, own: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """Return a strip's own gradient with the neighbours' gradient in its first and last k rows.

        A strip without a neighbour at an edge keeps its own gradient there. If `rank` is None, both
        edges are replaced. It is a common mistake to replace gradients instead of adding them.
        """
        made = own.clone()
        if rank is None or rank:
            made[:, :, : self.k] = first
        if rank is None or rank < self.n - 1:
            made[:, :, -self.k :] = last
        return made


def _joined(*columns: Tensors) -> list[Tensor]:
    return [torch.cat(each, dim=2) for each in zip(*columns, strict=True)]


def _added(own: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Add `first` to the first rows of a strip's gradient, and `last` to the last rows."""
    made, k = own.clone(), first.shape[2]
    made[:, :, :k] += first
    made[:, :, -k:] += last
    return made
