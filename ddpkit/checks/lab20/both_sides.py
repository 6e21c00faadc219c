"""Lab 20: two runs for an answer of hidden_from, with fewer and with more tokens than its number.

The tensors of these runs have shapes but no values. A run has eight layers: MLPs for "shards" and
"slices", linear layers for "copies".

On the emulated device only matrix products cost time. So the exposed time of a step is the length
of the step minus the time of the arithmetic, minus the time of the messages that nothing can hide.
These messages are the first gather and the last scatter of shards, the last all-reduce of copies,
and the last all-reduce of slices of each half of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ddpkit.checks.lab20.limits import Hidden
from ddpkit.cluster import Cluster
from ddpkit.rank.record.marks import step as whole_step

STRETCHES = 8


@cache
def exposed(ask: Hidden, counts: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return (exposed ms, exposed ms / computing ms) of a step, for each number of tokens.

    The numbers of tokens run one after the other, in one Cluster of `ask.n` ranks. Only one rank
    runs; the cluster copies its times to the other ranks.
    """
    cluster = Cluster(
        ask.n,
        machine=f"device of {ask.tera} TFLOP/s",
        link=f"{ask.giga} GB/s, {ask.us} us",
        values=False,
        alike=1,
        device="cpu",
    )
    trace = cluster.run(_RUNS[ask.way], ask.sizes, list(counts)).trace
    last = [2 * number + 1 for number in range(len(counts))]
    found = []
    for number, tokens in zip(last, counts, strict=True):
        length = trace.step(number).duration_ms
        computing = 1e3 * tokens * _flops(ask) / (ask.tera * 1e12)
        over = max(0.0, length - computing - _never_hidden(ask, tokens))
        found.append((over, over / computing))
    return found


def _flops(ask: Hidden) -> float:
    """Return the FLOPs of a rank in a step, for each token."""
    if ask.way == "slices":
        return 2 * STRETCHES * ask.block / ask.n
    return 6 * STRETCHES * ask.block


def _never_hidden(ask: Hidden, tokens: int) -> float:
    """Return the ms of the messages before and after all computing, which nothing can hide."""
    n, seconds = ask.n, ask.us * 1e-6

    def trip(nbytes: float) -> float:
        return 1e3 * (n - 1) * (seconds + nbytes / n / (ask.giga * 1e9))

    if ask.way == "shards":
        return trip(2 * ask.block) + trip(4 * ask.block)
    if ask.way == "copies":
        return 2 * trip(4 * ask.block)
    return 2 * trip(2 * ask.sizes[0] * (tokens // 2))


class _Wide(nn.Module):
    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(d, h, bias=False), nn.Linear(h, d, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.wide(x))  # type: ignore[no-any-return]


def _shards(sizes: tuple[int, int], counts: Sequence[int]) -> None:
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    blocks: list[Any] = [fully_shard(_Wide(*sizes), mp_policy=mixed) for _ in range(STRETCHES)]
    model: Any = nn.Sequential(*blocks)
    fully_shard(model, mp_policy=mixed)
    for tokens in counts:
        for _ in range(2):
            x = torch.empty(tokens, sizes[0], dtype=torch.bfloat16, requires_grad=True)
            with whole_step():
                model(x).sum().backward()


def _copies(sizes: tuple[int, int], counts: Sequence[int]) -> None:
    layers = [nn.Linear(*sizes, bias=False) for _ in range(STRETCHES)]
    cap = 4 * sizes[0] * sizes[1] / 2**20
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=cap)
    warm = torch.empty(2, sizes[0], requires_grad=True)
    for _ in range(2):  # the reducer makes its buckets anew after the first backward
        model(warm).sum().backward()
    for tokens in counts:
        for _ in range(2):
            x = torch.empty(tokens, sizes[0], requires_grad=True)
            with whole_step():
                model(x).sum().backward()


def _slices(sizes: tuple[int, int], counts: Sequence[int]) -> None:
    d, h = sizes
    n = dist.get_world_size()
    wide = torch.empty(d, h // n, dtype=torch.bfloat16)
    narrow = torch.empty(h // n, d, dtype=torch.bfloat16)
    for tokens in counts:
        for _ in range(2):
            halves = [
                torch.empty(part, d, dtype=torch.bfloat16)
                for part in (tokens // 2, tokens - tokens // 2)
            ]
            works: list[Any] = [None, None]
            with whole_step(), torch.no_grad():
                for _ in range(STRETCHES):
                    for side in (0, 1):
                        if works[side] is not None:
                            works[side].wait()
                        halves[side] = halves[side] @ wide @ narrow
                        works[side] = dist.all_reduce(halves[side], async_op=True)
                for work in works:
                    work.wait()


_RUNS = {"shards": _shards, "copies": _copies, "slices": _slices}
