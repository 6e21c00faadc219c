"""Lab 20: a step of FSDP2 at real sizes, run without values, and its peak of memory.

The tensors have shapes but no values. The model is the lesson's model: attention and MLPs with
residual connections. Each norm is a single operation.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from ddpkit.checks.lab20.sizes import ShardedStep, TransformerShape
from ddpkit.cluster import Cluster
from ddpkit.rank.emulation.machine import current

MACHINE, LINK = (
    "device of 400 TFLOP/s, 2 TB/s",
    "450 GB/s, 5 us",
)  # the peak of memory does not depend on these rates


def _norm(width: int) -> nn.Module:
    return nn.LayerNorm(width, bias=False)


class TransformerBlock(nn.Module):
    """Attention and an MLP, each after a norm, and each with a residual connection."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.before, self.after = _norm(shape.width), _norm(shape.width)
        self.products = nn.ModuleList(nn.Linear(n, m, bias=False) for n, m in shape.products)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gated, products = self.shape.gated, list(self.products)
        gate = products.pop(-2) if gated else None
        *qkv, out, up, down = products
        y = self.before(x)
        q, k, v = self._heads([product(y) for product in qkv])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + out(y.transpose(1, 2).flatten(2))
        y = self.after(x)
        inner = F.gelu(up(y)) if gate is None else F.silu(up(y)) * gate(y)
        return x + down(inner)  # type: ignore[no-any-return]

    def _heads(self, parts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        shape, size = self.shape, self.shape.width // self.shape.heads
        if len(parts) != 3:
            parts = parts[0].chunk(3, -1)
        q, k, v = (part.view(*part.shape[:-1], -1, size).transpose(1, 2) for part in parts)
        if shape.kv_heads < shape.heads:
            k, v = (part.repeat_interleave(shape.heads // shape.kv_heads, 1) for part in (k, v))
        return q, k, v


class TransformerModel(nn.Module):
    """A transformer: takes token ids of shape (sequences, length), returns logits.

    `wrap` gets each new block, and returns the block to use.
    """

    def __init__(self, shape: TransformerShape, wrap: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(wrap(TransformerBlock(shape)) for _ in range(shape.layers))
        self.norm = _norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def _selected() -> object:
    """Return checkpoint contexts that keep the attention and the products number 1, 3, 5, ..."""
    seen = Counter[bool]()

    def choose(ctx: Any, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        keep = "attention" in str(op) or "bmm" in str(op)
        if op is torch.ops.aten.mm.default:
            seen[ctx.is_recompute] += 1
            keep = seen[ctx.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(choose)  # type: ignore[no-untyped-call]


def _checkpointed(block: nn.Module, again: str) -> nn.Module:
    if again != "none":
        more: dict[str, Any] = {"context_fn": _selected} if again == "selective" else {}
        block.forward = partial(
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False, **more
        )
    return block


def _shard(module: nn.Module) -> nn.Module:
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    sharded: Any = fully_shard(module, mp_policy=mixed)
    return sharded  # type: ignore[no-any-return]


def _sharded_block(block: nn.Module, again: str) -> nn.Module:
    return _shard(_checkpointed(block, again))


def train(steps: Sequence[ShardedStep]) -> list[int]:
    """Train each model for two steps, one model after the other; return the peak bytes of each."""
    rank, most = current(), list[int]()
    assert rank is not None
    assert rank.memory is not None
    for each in steps:
        shape = each.shape
        wrap = partial(_sharded_block, again=each.again)
        model = _shard(TransformerModel(shape, wrap))
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        ids = torch.zeros(each.sequences, each.length, dtype=torch.long)
        for _ in range(2):
            rank.memory.forget_most()
            logits = model(ids)
            loss = F.cross_entropy(logits.float().view(-1, shape.vocab), ids.view(-1))
            del logits
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        most.append(rank.memory.most)
        del model, optimizer, loss
        gc.collect()  # FSDP's modules refer to each other
    return most


@cache
def peaks(steps: tuple[ShardedStep, ...]) -> list[int]:
    """Return the peak bytes of rank 0 in each step; all steps have the same number of ranks."""
    (ranks,) = {each.ranks for each in steps}
    cluster = Cluster(ranks, machine=MACHINE, link=LINK, values=False, alike=1, device="cpu")
    return cluster.run(train, steps).results[0]
