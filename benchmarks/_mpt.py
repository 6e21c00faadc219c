"""MosaicML's MPT in plain torch, as in MosaicML's published steps, and a step's operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from benchmarks._kernels import Operations
from ddpkit.rank.emulation.machine import current


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model and of a micro-batch: all that its operations depend on."""

    width: int
    heads: int
    layers: int
    hidden: int
    vocabulary: int
    sequence: int
    micro_batch: int
    recomputed: bool  # full activation checkpointing


class Block(nn.Module):
    """Attention and an MLP, without biases; each has a norm before it and a residual path."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, hidden = sizes.width, sizes.hidden
        self.heads = sizes.heads
        self.qkv, self.out = _linear(width, 3 * width), _linear(width, width)
        self.up, self.down = _linear(width, hidden), _linear(hidden, width)
        self.before_attention = nn.LayerNorm(width, bias=False)
        self.before_mlp = nn.LayerNorm(width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.before_attention(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class MPT(nn.Module):
    """MPT: token ids of shape (sequences, tokens) -> logits; head and embedding share a weight."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, bias=False)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.recomputed = sizes.recomputed

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            if self.recomputed:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)


def operations(sizes: Sizes, ranks: int) -> tuple[Operations, Operations]:
    """Return the operations of a rank: in a micro-batch, and in a step of the optimizer."""
    model = MPT(sizes)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    mesh = init_device_mesh("cpu", (ranks,))
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=mixed)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    rank = current()
    assert rank is not None
    for _ in range(2):  # the first step makes the optimizer's state
        with rank.noting() as micro_batch:
            ids = torch.randint(0, 1000, (sizes.micro_batch, sizes.sequence))
            logits = model(ids)
            F.cross_entropy(logits.float().view(-1, sizes.vocabulary), ids.view(-1)).backward()
            del logits
        with rank.noting() as update:
            optimizer.step()
            optimizer.zero_grad()
    return _counted(micro_batch), _counted(update)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _counted(program: Iterable[list[Any]]) -> Operations:
    found: Operations = Counter()
    for what, *entry in program:
        assert what != "beyond", entry
        if what == "work":
            *operation, times = entry
            found[tuple(operation)] += times  # type: ignore[index]
    return found
