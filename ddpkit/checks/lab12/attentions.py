"""Lab 12: attention in one process: what its heads on ranks should give, and what mistakes give."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ddpkit.checks.lab12.on_ranks import learned

HEAD_DIM, BATCH, TOKENS = 3, 2, 4


class SelfAttention(nn.Module):
    """An `nn.MultiheadAttention` whose queries, keys and values are made of one input."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


class Attention:
    """An attention, an input and a gradient of its output, and what comes of them alone."""

    def __init__(self, seed: int, heads: int) -> None:
        width = heads * HEAD_DIM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.attention: Any = nn.MultiheadAttention(width, heads, batch_first=True)
            for bias in (self.attention.in_proj_bias, self.attention.out_proj.bias):
                nn.init.normal_(bias)  # torch begins with zeros: nobody would miss them
            self.x, self.gradient = (torch.randn(BATCH, TOKENS, width) for _ in range(2))
        self.heads, self.width = heads, width
        given = self.x.clone().requires_grad_()
        output = SelfAttention(self.attention)(given)
        (self.gradient_of_x,) = torch.autograd.grad(output, given, self.gradient)
        self.output = output.detach()
        self.learned = learned(SelfAttention(deepcopy(self.attention)), self.x, self.gradient)

    def held(self, n: int) -> list[int]:
        """Bytes of each rank's heads: their weights and biases, and the last bias."""
        heads = [len(part) for part in torch.arange(self.heads).tensor_split(n)]
        row = (self.width + 1) * 3 + self.width  # of queries, keys, values; a column of the last
        return [4 * (each * HEAD_DIM * row + self.width) for each in heads]

    def models(self, n: int) -> Mapping[str, Any]:
        """What some mistakes give."""
        rows = torch.arange(3 * self.width)
        right = rows.view(3, self.heads, HEAD_DIM)
        bias = self.attention.out_proj.bias.detach()
        lying = [part.view(3, -1, HEAD_DIM) for part in rows.chunk(n)] if self._fits(n) else [right]
        return {
            "n": n,
            "whole": 4 * 3 * self.width * self.width,
            "of_x": self.gradient_of_x,
            "bias_in_each": self.output + (n - 1) * bias,
            "no_bias": self.output - bias,
            "no_bias_of_queries": self._made(right, biased=False),
            "as_it_lies": self._made(torch.cat(lying, dim=1)),
            "every_other": self._made(rows.view(3, HEAD_DIM, self.heads).transpose(1, 2)),
            "cut_off": self._made(right[:, : self.heads // n * n]),
        }

    def _fits(self, n: int) -> bool:
        return self.heads % n == 0

    @torch.no_grad()
    def _made(self, rows: Any, *, biased: bool = True) -> Any:
        """The output of heads; ``rows`` [3, head, …] make their queries, keys and values."""
        weight, bias = self.attention.in_proj_weight, self.attention.in_proj_bias
        made = self.x @ weight[rows.flatten()].t() + biased * bias[rows.flatten()]
        q, k, v = made.unflatten(-1, rows.shape).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        out = self.attention.out_proj
        return y @ out.weight[:, : y.shape[-1]].t() + out.bias
