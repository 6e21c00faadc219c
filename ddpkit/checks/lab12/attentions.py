"""Lab 12: attention in one process: the right results, and the results of common mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ddpkit.checks.lab12.on_ranks import learns

HEAD_DIM, BATCH, TOKENS = 3, 2, 4


class SelfAttention(nn.Module):
    """An `nn.MultiheadAttention` with queries, keys and values from one input."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


class Attention:
    """An attention layer, its input, a gradient of its output, and the results in one process."""

    def __init__(self, seed: int, heads: int) -> None:
        width = heads * HEAD_DIM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.attention: nn.MultiheadAttention = nn.MultiheadAttention(
                width, heads, batch_first=True
            )
            for bias in (self.attention.in_proj_bias, self.attention.out_proj.bias):
                nn.init.normal_(bias)  # torch begins with zeros, so a missing bias would not show
            self.x, self.gradient = (torch.randn(BATCH, TOKENS, width) for _ in range(2))
        self.heads, self.width, self.seed = heads, width, seed
        given = self.x.clone().requires_grad_()
        output = SelfAttention(self.attention)(given)
        (self.gradient_of_x,) = torch.autograd.grad(output, given, self.gradient)
        self.output = output.detach()
        twin = deepcopy(self.attention)
        self.learned, self.learns = learns(twin, SelfAttention(twin), self.x, self.gradient)

    def held(self, n: int) -> list[int]:
        """Return the bytes of each rank's part of the layer.

        The part has the weights and biases of the rank's heads, and the bias of the last
        projection.
        """
        heads = [len(part) for part in torch.arange(self.heads).tensor_split(n)]
        row = (self.width + 1) * 3 + self.width  # q, k, v, and a column of the last weight
        return [4 * (each * HEAD_DIM * row + self.width) for each in heads]

    def layers(self, n: int) -> list[nn.MultiheadAttention]:
        """Return a layer for each rank: the rank's own heads are right, all other heads are random.

        So a rank that keeps the whole layer still cannot compute the parts of other ranks.
        """
        found = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1)
            for heads in torch.arange(self.heads).tensor_split(n):
                other = nn.MultiheadAttention(self.width, self.heads, batch_first=True)
                columns = torch.arange(self.width).view(self.heads, HEAD_DIM)[heads].flatten()
                rows = self._rows[:, heads].flatten()
                with torch.no_grad():
                    nn.init.normal_(other.in_proj_bias)
                    other.in_proj_weight[rows] = self.attention.in_proj_weight[rows]
                    other.in_proj_bias[rows] = self.attention.in_proj_bias[rows]
                    theirs, ours = other.out_proj, self.attention.out_proj
                    theirs.weight[:, columns] = ours.weight[:, columns]
                    theirs.bias.copy_(ours.bias)
                found.append(other)
        return found

    @property
    def _rows(self) -> Tensor:
        """The row numbers of `in_proj_weight`, as [query, key or value; head; row of the head]."""
        return torch.arange(3 * self.width).view(3, self.heads, HEAD_DIM)

    def models(self, n: int) -> Mapping[str, object]:
        """Return the results of common mistakes, by the name of the mistake."""
        bias, layers = self.attention.out_proj.bias.detach(), self.layers(n)
        mine = self._rows.tensor_split(n, dim=1)
        every_other = self._rows.view(3, HEAD_DIM, self.heads).transpose(1, 2)
        lying = self._rows.flatten().chunk(n) if self._fits(n) else ()
        each = self.heads // n
        return {
            "n": n,
            "last_bias": "the bias of `out_proj`",
            "dealt": self._by_heads(layers, [range(rank, self.heads, n) for rank in range(n)]),
            "first_part": self._by_heads(layers, [range(mine[0].shape[1])] * n),
            "whole": 4 * 3 * self.width * self.width,
            "of_x": self.gradient_of_x,
            "bias_in_each": self.output + (n - 1) * bias,
            "no_bias": self.output - bias,
            "no_bias_of_queries": self._made(layers, mine, biased=False),
            "as_it_lies": self._made(layers, [part.view(3, -1, HEAD_DIM) for part in lying]),
            "every_other": self._made(layers, every_other.tensor_split(n, dim=1)),
            "cut_off": self._made(layers, self._rows[:, : each * n].tensor_split(n, dim=1)),
        }

    def _by_heads(
        self, layers: Sequence[nn.MultiheadAttention], heads: Sequence[Sequence[int]]
    ) -> Any:
        """Return the output if each rank r computes the heads `heads[r]` of its own layer."""
        parts = [self._rows[:, list(mine)] for mine in heads]
        return self._made(layers, parts, columns=[rows[0].flatten() for rows in parts])

    def _fits(self, n: int) -> bool:
        return self.heads % n == 0

    @torch.no_grad()
    def _made(
        self,
        layers: Sequence[Any],
        parts: Sequence[Any],
        *,
        biased: bool = True,
        columns: Sequence[Any] = (),
    ) -> Any:
        """Return the output if each rank computes some rows of its layer in `layers`.

        The rows `parts[rank]` [3, head, …] compute the queries, keys and values of a rank's heads.
        `columns[rank]` are the columns of the last projection for these heads; by default, the
        ranks take the columns in order.
        """
        total, at = self.attention.out_proj.bias, 0
        for rank, (layer, rows) in enumerate(zip(layers, parts, strict=False)):
            weight, bias = layer.in_proj_weight, layer.in_proj_bias
            made = self.x @ weight[rows.flatten()].t() + biased * bias[rows.flatten()]
            q, k, v = made.unflatten(-1, rows.shape).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            used = columns[rank] if columns else slice(at, at + y.shape[-1])
            total = total + y @ layer.out_proj.weight[:, used].t()
            at += y.shape[-1]
        return total
