"""Lab 20: sizes of transformers, their FLOPs and memory, and the counts of common mistakes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

AGAIN = "none", "selective", "full"


@dataclass(frozen=True)
class TransformerShape:
    """The sizes of a transformer, under the names of the lesson's `Shape`."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    gated: bool = True
    tied: bool = False

    @property
    def products(self) -> list[tuple[int, int]]:
        """The shapes (in, out) of a block's matrices, in the order of a forward."""
        d, kv, h = self.width, self.width // self.heads * self.kv_heads, self.hidden
        if self.gated:
            return [(d, d), (d, kv), (d, kv), (d, d), (d, h), (d, h), (h, d)]
        return [(d, d + 2 * kv), (d, d), (d, h), (h, d)]

    @property
    def block(self) -> int:
        """The number of parameters of one block."""
        return sum(n * m for n, m in self.products) + 2 * self.width

    @property
    def root(self) -> int:
        """The number of parameters outside the blocks."""
        return (2 - self.tied) * self.vocab * self.width + self.width

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return self.layers * self.block + self.root


def gated(rng: random.Random, layers: int, width: int) -> TransformerShape:
    """Draw the sizes of a model with gated MLPs and fewer key heads than query heads."""
    heads = width // 128
    return TransformerShape(layers, width, heads, heads // 2, 3 * width + 128 * rng.randrange(9),
                 rng.randrange(16_000, 60_000))  # fmt: skip


def plain(rng: random.Random, layers: int, width: int) -> TransformerShape:
    """Draw the sizes of a model with MLPs of two matrices, and a tied output layer."""
    heads = width // 128
    return TransformerShape(layers, width, heads, heads, 4 * width + 128 * rng.randrange(9),
                 rng.randrange(16_000, 60_000), gated=False, tied=True)  # fmt: skip


# FLOPs

Batch = tuple[TransformerShape, int, int]  # a shape, sequences, and their length


def parts_of(batch: Batch) -> tuple[list[int], int, int]:
    """Return the forward FLOPs of a block's products, a block's attention, and the output layer."""
    shape, sequences, length = batch
    tokens = sequences * length
    dense = [2 * tokens * n * m for n, m in shape.products]
    return dense, 4 * tokens * length * shape.width, 2 * tokens * shape.width * shape.vocab


def flops(batch: Batch, again: str = "none") -> int:
    """Return the FLOPs of forward and backward; `again` names the parts computed twice."""
    dense, attention, head = parts_of(batch)
    block, layers = sum(dense) + attention, batch[0].layers
    more = {"none": 0, "selective": sum(dense[1:-1:2]), "full": block - dense[-1]}
    return 3 * (layers * block + head) + layers * more[again]


def flops_by_ideas(batch: Batch) -> dict[str, int]:
    """Return the FLOPs that each mistake gives, where nothing is computed again."""
    (_, attention, head), shape = parts_of(batch), batch[0]
    right = flops(batch)
    return {
        "6ND": 6 * shape.parameters * batch[1] * batch[2],
        "attention": right - 3 * shape.layers * attention,
        "halved": right - 3 * shape.layers * attention // 2,
        "no head": right - 3 * head,
        "head twice": right + 3 * head,
        "backward": 2 * right // 3,
    }


def drawn_batches(rng: random.Random) -> list[Batch]:
    """Return two random shapes, each with a short and with a long sequence length."""
    found = list[Batch]()
    for make in (gated, plain):
        shape = make(rng, rng.randrange(2, 6), 256 * rng.randrange(2, 5))
        found += [(shape, 2, 256), (shape, 1, 4096)]
    return found


# Memory


@dataclass(frozen=True)
class ShardedStep:
    """A training step of FSDP2: a model, a number of ranks, and the tokens of a rank."""

    shape: TransformerShape
    ranks: int
    sequences: int
    length: int
    again: str = "none"
    name: str = ""

    @property
    def words(self) -> str:
        """The step in a few words, for the title of a case."""
        name = self.name or f"{self.shape.layers} blocks of width {self.shape.width}"
        return (
            f"{name} on {self.ranks} ranks, {self.sequences} × {self.length:,} tokens, {self.again}"
        )


_MPT = {"gated": False, "tied": True}
LLAMA_8B = TransformerShape(32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = TransformerShape(80, 8192, 64, 8, 28672, 128256)
LLAMA_405B = TransformerShape(126, 16384, 128, 8, 53248, 128256)
MPT_70B = TransformerShape(80, 8192, 64, 64, 32768, 50368, **_MPT)
MPT_30B = TransformerShape(48, 7168, 56, 56, 28672, 50368, **_MPT)
MPT_7B = TransformerShape(32, 4096, 32, 32, 16384, 50368, **_MPT)
MPT_1B = TransformerShape(24, 2048, 16, 16, 8192, 50368, **_MPT)
# The most bytes that a rank held in a run without values; test_peaks.py of lab 20 repeats the runs.
PEAKS: Mapping[ShardedStep, int] = {
    ShardedStep(LLAMA_8B, 8, 2, 8192, "selective", "Llama 8B"): 72_984_641_716,
    ShardedStep(LLAMA_8B, 8, 2, 8192, "full", "Llama 8B"): 43_926_503_604,
    ShardedStep(LLAMA_8B, 16, 1, 4096, "none", "Llama 8B"): 38_135_396_564,
    ShardedStep(LLAMA_8B, 64, 1, 32768, "full", "Llama 8B"): 63_166_548_116,
    ShardedStep(MPT_70B, 512, 8, 2048, "full", "MPT 70B"): 36_740_925_648,
    ShardedStep(MPT_30B, 8, 1, 4096, "full", "MPT 30B"): 67_197_054_128,
    ShardedStep(MPT_7B, 128, 6, 2048, "none", "MPT 7B"): 60_258_158_224,
    ShardedStep(MPT_1B, 8, 14, 2048, "none", "MPT 1B"): 64_884_875_632,
    ShardedStep(LLAMA_70B, 256, 1, 8192, "selective", "Llama 70B"): 102_427_197_652,
    ShardedStep(LLAMA_405B, 512, 1, 8192, "full", "Llama 405B"): 90_349_667_916,
}


def fits(step: ShardedStep, **by_mistake: Any) -> float:
    """Return the peak bytes of a rank, by the right formula; keywords add mistakes.

    logit    bytes of each logit while the loss is computed
    state    bytes that a rank keeps for each parameter of its shard
    divided  False: each rank keeps the state of all parameters
    again    replaces `step.again` in the choice of the tensors that are kept for backward
    working  False: leave out the temporary tensors of a block's backward
    root     False: leave out the gathered parameters outside the blocks
    ends     False: leave out the gradients at the end of backward
    """
    shape, again, d = step.shape, step.again, step.shape.width
    whole = shape.parameters
    mine = whole / step.ranks if by_mistake.get("divided", True) else whole
    tokens = step.sequences * step.length
    in_bfloat16 = 2 * tokens  # bytes, for one number of each token
    numbers = {
        "full": d,
        "selective": 2 * d + sum(m for _, m in shape.products[::2]),
        "none": 8 * d + (4 if shape.gated else 2) * shape.hidden,
    }
    held = in_bfloat16 * shape.layers * numbers[by_mistake.get("again", again)]
    recomputed = 0 if again == "none" else in_bfloat16 * numbers["none"]
    needs = by_mistake.get("working", True)
    working = (9 * shape.block + 2 * d * shape.vocab + recomputed) if needs else 0
    loss = held + by_mistake.get("logit", 12) * tokens * shape.vocab
    ends = 4 * whole / step.ranks if by_mistake.get("ends", True) else 0
    root = 2 * shape.root if by_mistake.get("root", True) else 0
    state = by_mistake.get("state", 12) * mine
    return float(state + root + max(loss, held + working, ends + working))


WRONG_FITS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "no logits": [{"logit": 0}],
    "logits once": [{"logit": each} for each in (2, 4, 6, 8, 10)],
    "not divided": [{"divided": False}],
    "states": [{"state": each} for each in (16, 14, 10, 8)],
    "again": [{"again": "none"}],
    "no working set": [{"working": False}],
}


def drawn_steps(rng: random.Random, ranks: int) -> list[ShardedStep]:
    """Draw two training steps on `ranks` ranks."""
    found = []
    for make, width, again in ((gated, 1024, "selective"), (plain, 2048, "full")):
        if rng.random() < 0.3:
            again = "none"
        shape = make(rng, rng.randrange(3, 6), width)
        found.append(ShardedStep(shape, ranks, 1, 128 * rng.randrange(8, 40), again))
    return found


def within(steps: Sequence[ShardedStep], peaks: Sequence[int]) -> bool:
    """True if the lesson's formula is within 3 % of the peak of each run."""
    return all(abs(fits(s) / p - 1) < 0.03 for s, p in zip(steps, peaks, strict=True))


def asked_flops(answer: Answer, batches: Sequence[Batch], again: str) -> dict[str, Any]:
    """Return the answer's FLOPs without recomputation, and its FLOPs for `again`."""
    found = {"none": [answer(*batch) for batch in batches]}
    if again != "none":
        found[again] = [answer(*batch, again) for batch in batches]
    return found


def asked_bytes(answer: Answer, steps: Sequence[ShardedStep]) -> dict[str, object]:
    """Return the bytes that the answer computes for each step."""
    return {
        "bytes": [answer(s.shape, s.ranks, s.sequences, s.length, s.again) for s in steps],
    }
