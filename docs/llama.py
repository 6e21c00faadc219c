"""A Llama in plain torch, and steps of a training: a script for GPUs, or for `ddpkit run`.

    torchrun --nproc-per-node 8 docs/llama.py --checkpoint selective

docs/real_sizes.md reads what `ddpkit run --no-values` says of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 3


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, by the names of Llama's own configuration."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int = 128_256


MODELS = {
    "70B": Sizes(80, 8192, 64, 8, 28_672),
    "8B": Sizes(32, 4096, 32, 8, 14_336),
    "1.3B": Sizes(24, 2048, 16, 16, 5_504, 50_304),
    "tiny": Sizes(2, 64, 4, 2, 128, 512),
}


class Block(nn.Module):
    """Attention and a gated MLP, each behind a norm and beside a residual path."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, head = sizes.width, sizes.width // sizes.heads
        self.head, self.repeats = head, sizes.heads // sizes.kv_heads
        self.query, self.out = _linear(width, width), _linear(width, width)
        self.key = _linear(width, sizes.kv_heads * head)
        self.value = _linear(width, sizes.kv_heads * head)
        self.gate, self.up = _linear(width, sizes.hidden), _linear(width, sizes.hidden)
        self.down = _linear(sizes.hidden, width)
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before_attention(x)
        query, key, value = (
            layer(y).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        key, value = (each.repeat_interleave(self.repeats, 1) for each in (key, value))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Token ids of shape (sequences, tokens) in, logits out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm, self.out = nn.RMSNorm(sizes.width), _linear(sizes.width, sizes.vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def _linear(before: int, after: int) -> nn.Linear:
    return nn.Linear(before, after, bias=False)


def selectively_checkpointed(model: Llama) -> None:
    """Let each block keep its attention and every second product; the backward repeats the rest."""
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint
    from torch.utils.checkpoint import create_selective_checkpoint_contexts as contexts

    aten = torch.ops.aten
    attention = (
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    )

    def context() -> Any:
        products = {True: 0, False: 0}

        def policy(now: Any, func: Any, *_: Any, **__: Any) -> CheckpointPolicy:
            keeps = func in attention
            if func == aten.mm.default:
                products[now.is_recompute] += 1
                keeps = products[now.is_recompute] % 2 == 1
            return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

        return contexts(policy)

    for block in model.blocks:
        how = {"use_reentrant": False, "context_fn": context, "preserve_rng_state": False}
        block.forward = lambda x, f=block.forward, how=how: checkpoint(f, x, **how)


def checkpointed(model: Llama) -> None:
    """Let each block keep its input alone; the backward repeats the block."""
    from torch.utils.checkpoint import checkpoint

    for block in model.blocks:
        block.forward = lambda x, f=block.forward: checkpoint(
            f, x, use_reentrant=False, preserve_rng_state=False
        )


CHECKPOINTS: dict[str, Callable[[Llama], None]] = {
    "none": lambda model: None,
    "selective": selectively_checkpointed,
    "full": checkpointed,
}


def sharded(name: str, checkpoint: str = "none", device: str = "cpu", hosts: int = 1) -> Llama:
    """Return a model, sharded by FSDP2; bfloat16 products, float32 sums.

    hosts  each host shards the whole model, and hosts are replicas (HSDP); 1 for a single sharding

    The model begins on the device "meta", because no machine could hold the whole model.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with torch.device("meta"):
        model = Llama(MODELS[name])
    CHECKPOINTS[checkpoint](model)
    n = dist.get_world_size()
    mesh = init_device_mesh(device, (n,))
    if hosts > 1:
        names = ("hosts", "in_host")
        mesh = init_device_mesh(device, (hosts, n // hosts), mesh_dim_names=names)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return model.to_empty(device=device)


def replicated(name: str) -> Any:
    """Return a model, replicated by DDP on all ranks."""
    return nn.parallel.DistributedDataParallel(Llama(MODELS[name]), gradient_as_bucket_view=True)


class Stage(nn.Module):
    """A half of a model, for a pipeline of two stages."""

    def __init__(self, model: Llama, number: int) -> None:
        super().__init__()
        middle = len(model.blocks) // 2
        self.embedding = model.embedding if number == 0 else nn.Identity()
        self.blocks = model.blocks[:middle] if number == 0 else model.blocks[middle:]
        ends = [model.norm, model.out] if number else []
        self.ends = nn.Sequential(*ends)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.ends(x)


def train_meshed(name: str, batch: int, tokens: int, micro_batches: int) -> list[int]:
    """Train on 2 replicas of 2 stages of 2 slices; return the emulated ns at each step's end.

    Stages are torch.distributed.pipelining's, by its 1F1B; slices are torch's tensor parallel.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicas", "stages", "slices"))
    number = mesh["stages"].get_local_rank()
    with torch.device("meta"):
        stage = Stage(Llama(MODELS[name]), number)
    columns = {name: ColwiseParallel() for name in ("query", "key", "value", "gate", "up")}
    for block in stage.blocks:
        rows = {name: RowwiseParallel() for name in ("out", "down")}
        parallelize_module(block, mesh["slices"], {**columns, **rows})
    stage = stage.to_empty(device="cpu")
    pipeline = Schedule1F1B(
        PipelineStage(stage, number, 2, torch.device("cpu"), group=mesh["stages"].get_group()),
        micro_batches,
        lambda logits, ids: F.cross_entropy(logits.flatten(0, 1), ids.flatten()),
    )
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-4, foreach=False)
    ends = [time.perf_counter_ns()]
    for _ in range(STEPS):
        ids = torch.randint(0, 500, (batch, tokens))
        if number == 0:
            pipeline.step(ids)
        else:
            pipeline.step(target=ids)
        for parameter in stage.parameters():
            gradient: Any = parameter.grad
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            dist.all_reduce(local, group=mesh["replicas"].get_group())
        optimizer.step()
        optimizer.zero_grad()
        torch.cpu.synchronize()
        ends.append(time.perf_counter_ns())
    return ends


def train(
    model: Any,
    batch: int,
    tokens: int,
    *,
    autocast: bool = False,
    steps: int = STEPS,
    device: str = "cpu",
) -> list[int]:
    """Train by AdamW on random tokens; return the emulated ns before and after each step."""
    synchronize = torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ends = [time.perf_counter_ns()]
    for _ in range(steps):
        ids = torch.randint(0, 500, (batch, tokens), device=device)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
        del logits
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
        ends.append(time.perf_counter_ns())
    return ends


def main() -> None:
    """Train the model of the command line, on GPUs."""
    import torch.distributed as dist

    parser = argparse.ArgumentParser(description="Train a Llama, sharded by FSDP2.")
    parser.add_argument("--model", choices=MODELS, default="8B")
    parser.add_argument("--checkpoint", choices=CHECKPOINTS, default="none")
    parser.add_argument("--hosts", type=int, default=1, help="replicas, each sharded on a host")
    parser.add_argument("--batch", type=int, default=2, help="sequences on each rank")
    parser.add_argument("--tokens", type=int, default=8192, help="in a sequence")
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = sharded(asked.model, asked.checkpoint, "cuda", asked.hosts)
    train(model, asked.batch, asked.tokens, steps=asked.steps, device="cuda")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
