"""The model of lab 15: a small transformer that reads letters, in forty lines of plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddpkit.capstone.language import ALPHABET

LETTERS = len(ALPHABET)
CONTEXT, WIDTH, BLOCKS, HEADS = 64, 64, 2, 4
NOTHING = -100  # in place of a letter that is not to be guessed: padding


class AttentionBlock(nn.Module):
    """Attention to the letters before, then a small network for each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        layers = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), *layers)

    def forward(self, x: Tensor) -> Tensor:
        """What comes in, (batch, length, width), and what was found out beside it."""
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(x)
        return out


class TextModel(nn.Module):
    """Guesses the next letter: embeddings of letters and places, two blocks, a score for each."""

    def __init__(self) -> None:
        super().__init__()
        self.letter = nn.Embedding(LETTERS, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(AttentionBlock() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, letters: Tensor, following: Tensor) -> Tensor:
        """The mean loss of the guesses, in nats a letter.

        letters, following  int64 (batch, length), length up to 64: a text, and the same one letter
        on; `following` is -100 where nothing is to be guessed.
        """
        x = self.letter(letters) + self.place(torch.arange(letters.shape[1]))
        scores = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(scores.flatten(0, 1), following.flatten(), ignore_index=NOTHING)
