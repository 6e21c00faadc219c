"""Lab 16: a whole sequence in one process, and the share of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def stretches(sizes: Sequence[int]) -> list[Any]:
    """Return each rank's positions; the shares follow each other in the sequence."""
    positions: Any = torch.arange(sum(sizes))
    return list(positions.split(list(sizes)))


def in_two_chunks(length: int, n: int) -> list[Tensor]:
    """Return the zigzag positions: each rank has one early and one late of 2n chunks."""
    parts = torch.arange(length).tensor_split(2 * n)
    early, late = parts[:n], parts[n:]
    return [torch.cat(pair) for pair in zip(early, reversed(late), strict=True)]


class Whole:
    """A whole sequence: queries, keys, values, and a gradient of the output.

    Each has the shape [head, token, feature]. `places` are the positions of each rank's tokens.
    """

    def __init__(
        self, seed: int, places: Sequence[Tensor], *, heads: int, width: int, causal: bool
    ) -> None:
        drawn = torch.Generator().manual_seed(seed)
        self.places, self.causal, self.n = list(places), causal, len(places)
        length = sum(map(len, places))
        self.q, self.k, self.v, self.of_out = (
            torch.randn(heads, length, width, generator=drawn) for _ in range(4)
        )

    @property
    def sizes(self) -> list[int]:
        """The number of tokens of each rank."""
        return list(map(len, self.places))

    @property
    def share(self) -> int:
        """The bytes of the keys and values in the largest share."""
        return 2 * max(self.sizes) * self.k[:, 0].nbytes

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and all values."""
        return self.k.nbytes + self.v.nbytes

    def cut(self, x: Tensor) -> list[Tensor]:
        """Return the part of x that belongs to each rank's tokens."""
        return [x[:, at].contiguous() for at in self.places]

    def mask(self) -> Tensor | None:
        """Return a mask that is True where a query may attend to a key; None without a mask."""
        at = torch.arange(self.q.shape[1])
        return at[:, None] >= at if self.causal else None

    @cached_property
    def lse(self) -> Any:
        """The log-sum-exp of each query, [head, token, 1]."""
        scores = self.q @ self.k.mT / self.q.shape[-1] ** 0.5
        mask = self.mask()
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.logsumexp(-1, keepdim=True)

    @cached_property
    def output(self) -> Tensor:
        """The output of torch's attention for the whole sequence."""
        return scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=self.mask())

    @cached_property
    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v by torch's backward."""
        q, k, v = (x.clone().requires_grad_() for x in (self.q, self.k, self.v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=self.mask())
        found = torch.autograd.grad(out, (q, k, v), self.of_out)
        return found[0], found[1], found[2]

    def blocks(self) -> list[list[tuple[Tensor, Tensor, Tensor]]]:
        """Return [r][s]: the gradients of q, k and v from rank r's queries and rank s's keys."""
        from ddpkit.checks.lab16.on_ranks import block_back

        qs, ks, vs, outs, lses, of_outs = map(
            self.cut, (self.q, self.k, self.v, self.output, self.lse, self.of_out)
        )
        return [
            [
                block_back(qs[r], ks[s], vs[s], outs[r], lses[r], of_outs[r], self.mask_of(r, s))
                for s in range(self.n)
            ]
            for r in range(self.n)
        ]

    def mask_of(self, r: int, s: int) -> Tensor | None:
        """Return the mask of rank r's queries and rank s's keys; None without a mask."""
        return self.places[r][:, None] >= self.places[s] if self.causal else None
